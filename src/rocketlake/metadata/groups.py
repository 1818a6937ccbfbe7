"""subscriptionGroup.json: the consumer groups; `GroupBook` also changes and writes them.

    {"dataVersion": {...}, "forbiddenTable": {group: {topic: bits}},
     "subscriptionGroupTable": {name: {"groupName": name, "retryMaxTimes": 16, ...}}}

4.x has no `forbiddenTable` and only the first nine members of a group.
"""

from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct, field

from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import table
from rocketlake.metadata.book import VERSION_NAME, Book, TableLocation, encode_entry
from rocketlake.metadata.table import DataVersion

FILE_NAME: Final = "subscriptionGroup.json"
_TABLE: Final = "subscriptionGroupTable"
_FORBIDDEN: Final = "forbiddenTable"
# Compat: null in SubscriptionGroupConfig until it is set, so that it is left out.
_OPTIONAL: Final = frozenset({"subscriptionDataSet"})
_LATER: Final = _OPTIONAL | {
    "attributes",
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "groupRetryPolicy",
    "groupSysFlag",
}


class RetryPolicyType(StrEnum):
    """How the time until the next delivery grows."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetry(Struct, frozen=True):
    """Delays that grow by a factor, in milliseconds."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


class CustomizedRetry(Struct, frozen=True):
    """Delays one by one, in milliseconds; none means those of the delay levels."""

    next: list[int] = []


class RetryPolicy(Struct, frozen=True, rename="camel"):
    """When a message that failed is delivered again."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential: ExponentialRetry | None = field(default=None, name="exponentialRetryPolicy")
    customized: CustomizedRetry | None = field(default=None, name="customizedRetryPolicy")


class GroupSubscription(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a group is allowed to subscribe to."""

    topic: str
    expression: str | None = None
    expression_type: str | None = None
    version: int = 0


class SubscriptionGroup(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the broker keeps about a group; defaults are those of the reference's class."""

    name: str = field(name="groupName")
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_count: int = field(default=1, name="retryQueueNums")
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True

    # --- since 5.0 ---
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    retry_policy: RetryPolicy = field(default=RetryPolicy(), name="groupRetryPolicy")
    sys_flag: int = field(default=0, name="groupSysFlag")
    subscriptions: list[GroupSubscription] = field(default_factory=list, name="subscriptionDataSet")
    attributes: dict[str, str] = {}


class GroupTable(Struct, frozen=True):
    """Groups by name, in the order of the file, and what some are forbidden to do with a topic."""

    groups: dict[str, SubscriptionGroup] = {}
    forbidden: dict[str, dict[str, int]] = {}
    version: DataVersion | None = None


def load(config_dir: Path) -> GroupTable:
    """Read subscriptionGroup.json or its backup; an empty table if there is neither.

    Raises:
        StoreError: Neither of the files that are there can be used.
    """
    return table.load(config_dir / FILE_NAME, decode, GroupTable())


def decode(value: JsonObject) -> GroupTable:
    """Turn the JSON of subscriptionGroup.json into a table.

    Raises:
        ValueError: A member is of the wrong type; says which one.
    """
    groups = {
        # Compat: the broker looks a group up by its key; the name inside is only shown.
        name: table.convert({"groupName": name, **members}, SubscriptionGroup, where)
        for name, where, members in table.get_entries(value, "subscriptionGroupTable")
    }
    forbidden = {
        name: table.convert(members, dict[str, int], where)
        for name, where, members in table.get_entries(value, "forbiddenTable")
    }
    return GroupTable(groups, forbidden, table.decode_version(value))


class GroupBook(Book):
    """The consumer groups of a store, and what some are forbidden to do with a topic.

    Changes are in memory until `persist`. (The reference writes the file at each change.)

    Thread-safety: as Book. Questions read one dictionary and take no lock.
    """

    file_name: ClassVar[str] = FILE_NAME

    def __init__(self, location: TableLocation, members: JsonObject) -> None:
        super().__init__(location, members)
        loaded = decode(members)
        self._groups = loaded.groups
        self._forbidden = loaded.forbidden
        self._entries: JsonObject = {
            name: entry for name, _, entry in table.get_entries(members, _TABLE)
        }

    def get(self, name: str) -> SubscriptionGroup | None:
        """Return a group; None if it does not exist."""
        return self._groups.get(name)

    def groups(self) -> list[SubscriptionGroup]:
        """Return all groups, in the order of the file."""
        with self._lock:
            return list(self._groups.values())

    def create(self, group: SubscriptionGroup) -> SubscriptionGroup:
        """Add a group unless the name exists; return the group of that name."""
        with self._lock:
            found = self._groups.get(group.name)
            if found is None:
                self._put(group)
            return found or group

    def update(self, group: SubscriptionGroup) -> None:
        """Add or replace a group."""
        with self._lock:
            self._put(group)

    def delete(self, name: str) -> bool:
        """Remove a group and what it is forbidden; False if it does not exist."""
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
        """Return the bits of what a group is forbidden to do with a topic; 0: nothing."""
        return max(self._forbidden.get(group, {}).get(topic, 0), 0)

    def forbid(self, group: str, topic: str, bits: int) -> None:
        """Set what a group is forbidden to do with a topic; 0 allows all. For the broker."""
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
