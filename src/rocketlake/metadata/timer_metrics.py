"""TimerMetrics: timermetrics, how many messages of each topic wait in the timer.

{"dataVersion": {...}, "timingCount": {topic: {"count": 3, "timeStamp": ms}}}
"""

import re
from typing import ClassVar, Final

from msgspec import Struct

from rocketlake.format import java_json
from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import table
from rocketlake.metadata.book import VERSION_NAME, Book, TableLocation, encode_entry

FILE_NAME: Final = "timermetrics"
_TABLE: Final = "timingCount"
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


class TopicCount(Struct, frozen=True, rename={"timestamp": "timeStamp"}):
    """How many messages of a topic wait, and when that changed."""

    count: int = 0
    timestamp: int = 0


class TimerMetrics(Book):
    """Counts of waiting messages by topic, for display only.

    Thread-safety: as Book.
    """

    file_name: ClassVar[str] = FILE_NAME

    def __init__(self, location: TableLocation, members: JsonObject) -> None:
        super().__init__(location, members)
        self._counts = {
            topic: table.convert(entry, TopicCount, where)
            for topic, where, entry in table.get_entries(members, _TABLE)
        }

    def add(self, topic: str, count: int) -> None:
        """Add to the count of waiting messages of a topic; a negative count subtracts."""
        with self._lock:
            old = self._counts.get(topic, TopicCount())
            self._next_version()
            self._counts[topic] = TopicCount(old.count + count, self._version.timestamp)

    def get(self, topic: str) -> TopicCount:
        """Return how many messages of a topic wait."""
        return self._counts.get(topic, TopicCount())

    def counts(self) -> dict[str, int]:
        """Return how many messages wait, by topic."""
        with self._lock:
            return {topic: found.count for topic, found in self._counts.items()}

    def _encode(self) -> JsonObject:
        old = table.get_object(self._members, _TABLE)
        return {
            VERSION_NAME: self._encode_version(),
            _TABLE: {
                topic: encode_entry(found, table.get_object(old, topic), frozenset())
                for topic, found in self._counts.items()
            },
        }

    def _dump(self, members: JsonObject) -> bytes:
        # Compat: one line, and nothing but ASCII, as TimerMetrics#write0 (BrowserCompatible).
        text = java_json.dumps(members, pretty=False).decode()
        return _NOT_ASCII.sub(_escape, text).encode()


def _escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{int.from_bytes(units[at : at + 2], 'big'):04X}" for at in range(0, len(units), 2)
    )
