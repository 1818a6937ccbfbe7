"""A reader does what the reference's loop over units does, whatever lies in queue and log."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from rocketlake.filters.message_filter import make_filter
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.store.api import GetRequest, GetStatus
from support.read_parts import ReadParts

LOG_FILE, QUEUE_UNITS = 1000, 8


class Put(NamedTuple):
    """A message, and whether its record is broken afterwards."""

    tags: str | None
    size: int
    is_damaged: bool


class Scene(NamedTuple):
    """What is in the store, and what is asked of it."""

    puts: list[Put]
    expired: int
    offset: int
    max_messages: int
    max_bytes: int
    is_limited: bool
    tags: str | None
    options: dict[str, int]
    memory_size: int


puts = st.builds(
    Put,
    tags=st.sampled_from(["a", "b", "Aa", "BB", None]),
    size=st.integers(0, 300),
    is_damaged=st.sampled_from([False, False, False, False, True]),
)
scenes = st.builds(
    Scene,
    puts=st.lists(puts, min_size=1, max_size=24),
    expired=st.sampled_from([0, 0, 1, 2]),
    offset=st.integers(-1, 26),
    max_messages=st.sampled_from([0, 1, 2, 5, 32]),
    max_bytes=st.sampled_from([100, 700, 128 << 20]),
    is_limited=st.booleans(),
    tags=st.sampled_from([None, None, "a", "Aa", "a || BB", "none"]),
    options=st.fixed_dictionaries(
        {
            "max_filter_message_size": st.sampled_from([20, 70, 16000]),
            "travel_cq_file_num_when_get_message": st.sampled_from([1, 2, 9]),
            "max_transfer_bytes_on_message_in_memory": st.sampled_from([400, 262_144]),
            "max_transfer_count_on_message_in_memory": st.sampled_from([4, 32]),
            "max_transfer_bytes_on_message_in_disk": st.sampled_from([300, 65_536]),
            "max_transfer_count_on_message_in_disk": st.sampled_from([2, 8]),
            "access_message_in_memory_max_ratio": st.just(50),
        }
    ),
    memory_size=st.sampled_from([10, 1600, 4000, 1 << 40]),
)


class Answer(NamedTuple):
    """What a get says."""

    status: str
    numbers: list[int]
    corrupt: list[int]
    next_offset: int
    suggest_replica: bool


class Reference:
    """DefaultMessageStore#getMessage of 5.3.3, line by line; damage is stepped over."""

    def __init__(self, scene: Scene, units: list[QueueUnit], log_min: int, log_max: int) -> None:
        self.scene, self.units = scene, units
        self.log_min, self.log_max = log_min, log_max
        self.window = scene.memory_size * 50 // 100
        self.total = self.count = 0
        self.numbers: list[int] = []
        self.corrupt: list[int] = []
        self.wanted = None if scene.tags is None else {t.strip() for t in scene.tags.split("||")}

    def get(self) -> Answer:
        offset, high = self.scene.offset, len(self.units)
        if offset < 0:
            return Answer(GetStatus.OFFSET_TOO_SMALL, [], [], 0, False)
        if offset == high:
            return Answer(GetStatus.OFFSET_OVERFLOW_ONE, [], [], high, False)
        if offset > high:
            return Answer(GetStatus.OFFSET_OVERFLOW_BADLY, [], [], high, False)
        self.status, self.next, self.last_physical = GetStatus.NO_MATCHED_MESSAGE, offset, 0
        files, is_ended = 0, False
        while self.next < high and not is_ended and self.may_look_at_another_file(files):
            files += 1
            end = min((self.next // QUEUE_UNITS + 1) * QUEUE_UNITS, high)
            is_ended = self.look_at_file(self.next, end)
        is_behind = self.log_max - self.last_physical > self.window
        return Answer(self.status, self.numbers, self.corrupt, self.next, is_behind)

    def may_look_at_another_file(self, looked_at: int) -> bool:
        """Ours: what is not limited goes on as long as it is not full."""
        if not self.scene.is_limited:
            return True
        files_max = self.scene.options["travel_cq_file_num_when_get_message"]
        return self.total <= 0 and looked_at < files_max

    def look_at_file(self, begin: int, end: int) -> bool:
        """Look at units; tell whether the read is full, or has looked at enough."""
        scene = self.scene
        budget = max(scene.options["max_filter_message_size"], scene.max_messages * 20)
        next_file = None
        for number in range(begin, end):
            unit, put = self.units[number], scene.puts[number]
            if (number - scene.offset) * 20 >= budget or self.is_full(unit):
                return True
            self.last_physical, self.next = unit.physical_offset, number + 1
            if next_file is not None and unit.physical_offset < next_file:
                continue
            if self.wanted is not None and not self.has_hash(put.tags):
                self.note(GetStatus.NO_MATCHED_MESSAGE)
            elif unit.physical_offset < self.log_min:
                self.note(GetStatus.MESSAGE_WAS_REMOVING)
                next_file = (unit.physical_offset // LOG_FILE + 1) * LOG_FILE
            elif put.is_damaged:
                self.corrupt.append(number)
            elif self.wanted is not None and put.tags not in self.wanted:
                self.note(GetStatus.NO_MATCHED_MESSAGE)
            else:
                self.numbers.append(number)
                self.count, self.total = self.count + 1, self.total + unit.size
                self.status, next_file = GetStatus.FOUND, None
        return False

    def note(self, status: GetStatus) -> None:
        if self.total == 0:
            self.status = status

    def has_hash(self, tags: str | None) -> bool:
        same = {"Aa": {"Aa", "BB"}, "BB": {"Aa", "BB"}}
        return any(tags in same.get(each, {each}) for each in self.wanted or ())

    def is_full(self, unit: QueueUnit) -> bool:
        scene, options = self.scene, self.scene.options
        if self.total == 0:
            return False
        if self.count + 1 > scene.max_messages or self.total + unit.size > scene.max_bytes:
            return True
        if not scene.is_limited:
            return False
        is_in_memory = self.log_max - unit.physical_offset <= self.window
        place = "memory" if is_in_memory else "disk"
        size_max = options[f"max_transfer_bytes_on_message_in_{place}"]
        count_max = options[f"max_transfer_count_on_message_in_{place}"]
        return self.total + unit.size > size_max or self.count > count_max - 1


@given(scenes)
def test_get_answers_as_the_reference_does(scene):
    with tempfile.TemporaryDirectory() as directory:
        parts = ReadParts(Path(directory), log_file_size=LOG_FILE, queue_file_units=QUEUE_UNITS)
        for put in scene.puts:
            unit = parts.put(tags=put.tags, body=b"x" * put.size)
            if put.is_damaged:
                parts.log.flip(unit.physical_offset + 4)
        parts.log.expire(min(scene.expired, len(parts.log.files.files) - 1))
        reader = parts.reader(memory_size=scene.memory_size, **scene.options)
        result = reader.get(
            GetRequest(
                topic="T",
                queue_id=0,
                offset=scene.offset,
                max_messages=scene.max_messages,
                max_bytes=scene.max_bytes,
                is_limited=scene.is_limited,
            ),
            make_filter(scene.tags),
        )
        found = Answer(
            result.status,
            [message.queue_offset for message in result.messages],
            [unit.queue_offset for unit in result.corrupt],
            result.next_offset,
            result.suggest_replica,
        )
        bounds = parts.log.min_offset, parts.log.max_offset
        assert found == Reference(scene, parts.units, *bounds).get()
        assert parts.stats.corrupt_count == len(found.corrupt)
