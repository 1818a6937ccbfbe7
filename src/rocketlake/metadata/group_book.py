"""GroupBook: subscriptionGroup.json that can be changed."""

from typing import Final

from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import groups, table
from rocketlake.metadata.book import VERSION_NAME, Book, Place, encode_entry
from rocketlake.metadata.groups import SubscriptionGroup

_TABLE: Final = "subscriptionGroupTable"
_FORBIDDEN: Final = "forbiddenTable"
# Compat: null in SubscriptionGroupConfig until somebody fills it, so that it is left out.
_OPTIONAL: Final = frozenset({"subscriptionDataSet"})
_LATER: Final = _OPTIONAL | {
    "attributes",
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "groupRetryPolicy",
    "groupSysFlag",
}


class GroupBook(Book):
    """The consumer groups of a store, and what some must not do with a topic.

    Changes are in memory until `persist`. (The reference writes the file at each change.)

    Thread-safety: as Book. Questions read one dictionary and take no lock.
    """

    def __init__(self, place: Place, file_name: str, members: JsonObject) -> None:
        super().__init__(place, file_name, members)
        loaded = groups.decode(members)
        self._groups = loaded.groups
        self._forbidden = loaded.forbidden
        self._entries: JsonObject = {
            name: entry for name, _, entry in table.get_entries(members, _TABLE)
        }

    @classmethod
    def file_name(cls) -> str:
        """Return the name of the file."""
        return groups.FILE_NAME

    def get(self, name: str) -> SubscriptionGroup | None:
        """Return a group; None if there is no such one."""
        return self._groups.get(name)

    def groups(self) -> list[SubscriptionGroup]:
        """Return all groups, in the order of the file."""
        with self._lock:
            return list(self._groups.values())

    def create(self, group: SubscriptionGroup) -> SubscriptionGroup:
        """Add a group, unless one of this name is there already; return the one that is."""
        with self._lock:
            found = self._groups.get(group.name)
            if found is None:
                self._put(group)
            return found or group

    def update(self, group: SubscriptionGroup) -> None:
        """Add a group, or put it in the place of the one of this name."""
        with self._lock:
            self._put(group)

    def delete(self, name: str) -> bool:
        """Remove a group and what it must not do; False if there is no such one."""
        with self._lock:
            is_forbidden = self._forbidden.pop(name, None) is not None
            if self._groups.pop(name, None) is None:
                if is_forbidden:
                    self._changed()
                return False
            self._entries.pop(name, None)
            self._next_version()
            return True

    def forbidden(self, group: str, topic: str) -> int:
        """Return the bits of what a group must not do with a topic; 0 if it may do all."""
        return max(self._forbidden.get(group, {}).get(topic, 0), 0)

    def forbid(self, group: str, topic: str, bits: int) -> None:
        """Set what a group must not do with a topic; 0 allows all."""
        with self._lock:
            topics = dict(self._forbidden.get(group, {}))
            if bits > 0:
                topics[topic] = bits
            else:
                topics.pop(topic, None)
            if topics:
                self._forbidden[group] = topics
            else:
                self._forbidden.pop(group, None)
            self._next_version()

    def _put(self, group: SubscriptionGroup) -> None:
        old = table.get_object(self._entries, group.name)
        later = _LATER if self._is_4x else _OPTIONAL
        self._entries[group.name] = encode_entry(group, old, later)
        self._groups[group.name] = group
        self._next_version()

    def _encode(self) -> JsonObject:
        members: JsonObject = {VERSION_NAME: self._encode_version(), _TABLE: {**self._entries}}
        if self._forbidden or not self._is_4x or _FORBIDDEN in self._members:
            members[_FORBIDDEN] = {
                group: {topic: max(bits, 0) for topic, bits in topics.items()}
                for group, topics in self._forbidden.items()
            }
        return members
