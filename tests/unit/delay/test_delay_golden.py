"""What RocketMQ wrote for delayed messages, written again: the same bytes."""

import json

import pytest
from delay_fakes import MemoryStore

from rocketlake.delay.hook import DelayHook
from rocketlake.delay.level_scheduler import LevelRules, LevelScheduler
from rocketlake.delay.levels import DelayLevels
from rocketlake.delay.store_access import Usage
from rocketlake.delay.timer_files import TimerFiles
from rocketlake.delay.timer_rules import TimerRules
from rocketlake.delay.timer_store import TimerStore
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import layout
from rocketlake.format.queue_unit import decode_units
from rocketlake.format.record import scan
from rocketlake.format.timer import TimerCheckpoint
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.offsets import DelayOffsets
from rocketlake.metadata.timer_metrics import TimerMetrics
from rocketlake.model import properties as names
from rocketlake.model.message import Message
from rocketlake.store.api import AppendRequest
from rocketlake.store.options import StoreOptions
from support.golden import GoldenStores
from support.manual_clock import ManualClock

OPTIONS = StoreOptions()
LEVELS = DelayLevels(OPTIONS.delay_levels_ms)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return GoldenStores(tmp_path_factory.mktemp("golden"))


class Replay:
    """A store that gets what a golden one got, at the times it got it."""

    def __init__(self, golden, tmp_path):
        (file,) = golden.log_files
        self.wanted = file.read_bytes()[: golden.case.log_bounds[1]]
        self.records = list(scan(self.wanted).columns.messages())
        self.put_offsets = {line.get("wroteOffset") for line in golden.case.puts}
        self.golden = golden
        self.is_4x = not golden.case.is_5x
        self.clock = ManualClock(0)
        self.store = MemoryStore(self.clock, OPTIONS.delay_levels_ms)
        self.store.ends_properties = not golden.case.name.startswith("v4-")
        self.usage = Usage()
        self.place = TableLocation(PosixFileOps(), self.clock, tmp_path / "config", self.is_4x)

    def set_clock(self, time_ms):
        self.clock.advance_ms(time_ms - self.clock.now_ms())

    def put_all(self, hook):
        """Put each message, with its properties in the order the record has them."""
        self.store.hook = hook
        for record in self.records:
            if record.physical_offset not in self.put_offsets:
                continue
            self.set_clock(record.store_timestamp)
            # What RocketMQ set comes to its place again, from wrong values.
            wrong = {names.REAL_TOPIC: "?", names.REAL_QUEUE_ID: "?"}
            properties = {
                name: wrong.get(name, value)
                for name, value in record.properties.items()
                if name != names.TIMER_OUT_MS  # who has it is not timed again
            }
            topic = record.properties.get(names.REAL_TOPIC, record.topic)
            queue_id = int(record.properties.get(names.REAL_QUEUE_ID, record.queue_id))
            receipt = self.store.put(
                AppendRequest(
                    message=Message(topic=topic, body=record.stored_body, properties=properties),
                    queue_id=queue_id,
                    born_timestamp=record.born_timestamp,
                    born_host=record.born_host,
                    store_host=record.store_host,
                )
            )
            assert receipt.is_ok

    def delivered(self):
        return [r for r in self.records if r.physical_offset not in self.put_offsets]

    def check_queues(self):
        for path in self.golden.files("consumequeue"):
            units = decode_units(path.read_bytes())
            wanted = [tuple(unit.item()) for unit in units if unit["size"]]
            found = {
                (key.topic, str(key.queue_id)): value for key, value in self.store.queues.items()
            }
            assert found[path.parts[-3], path.parts[-2]] == wanted


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("release", ["v5", "v4", "v46"])
def test_levels_give_the_same_bytes(stores, tmp_path, release, when):
    replay = Replay(stores.get(f"{release}-delay-{when}"), tmp_path)
    replay.put_all(DelayHook(LEVELS, replay.clock, replay.usage, timer=None, is_4x=replay.is_4x))
    offsets = DelayOffsets.load(replay.place)
    rules = LevelRules(levels=LEVELS, is_4x=replay.is_4x, notes_waiting=release != "v4")
    scheduler = LevelScheduler(replay.store, replay.clock, offsets, rules, usage=replay.usage)
    for record in replay.delivered():
        replay.set_clock(record.store_timestamp)
        replay.store.stamps = [
            other.store_timestamp
            for other in replay.delivered()
            if other.physical_offset >= record.physical_offset
        ]
        scheduler.run_once()
        replay.store.stamps = []
    assert bytes(replay.store.log) == replay.wanted
    replay.check_queues()
    if when == "after":
        scheduler.close()
        wanted = replay.golden.root / "config" / "delayOffset.json"
        _, _, found_offsets = offsets.path.read_bytes().partition(b'"offsetTable"')
        _, _, wanted_offsets = wanted.read_bytes().partition(b'"offsetTable"')
        assert found_offsets == wanted_offsets


class TimerReplay(Replay):
    """The same with a timer."""

    def __init__(self, golden, tmp_path):
        super().__init__(golden, tmp_path)
        self.root = tmp_path
        self.rules = TimerRules(
            log_file_size=golden.case.options(golden.root)["mappedFileSizeTimerLog"]
        )
        self.metrics = TimerMetrics.load(self.place)
        self.timer = TimerStore(
            self.store,
            self.clock,
            TimerFiles(PosixFileOps(), self.clock, tmp_path, self.rules, flush_log=lambda: None),
            self.rules,
            metrics=self.metrics,
            usage=self.usage,
        )

    def deliver(self):
        """Deliver at the times RocketMQ did: as the records say it."""
        waiting = self.delivered()
        plain = self.store.append

        def append(request):
            record = waiting.pop(0)
            self.store.stamps = [record.store_timestamp]
            receipt = plain(request)
            if waiting:
                following = int(waiting[0].properties[names.TIMER_DEQUEUE_MS])
                if following - self.clock.now_ms() < 500:  # in the same slot
                    self.set_clock(following)
            return receipt

        self.store.append = append
        while waiting:
            self.set_clock(int(waiting[0].properties[names.TIMER_DEQUEUE_MS]))
            self.timer.run_once()


@pytest.fixture
def timer_replay(stores, tmp_path):
    replay = TimerReplay(stores.get("v5-timer"), tmp_path)
    replay.put_all(DelayHook(LEVELS, replay.clock, replay.usage, timer=replay.timer))
    replay.timer.run_once()
    replay.deliver()
    replay.set_clock(1_794_778_433_897)
    replay.timer.close()
    return replay


def test_timer_gives_the_same_records(timer_replay):
    found = list(scan(timer_replay.store.log).columns.messages())
    wanted = timer_replay.records
    assert [message.properties for message in found] == [r.properties for r in wanted]
    assert len(timer_replay.store.log) == len(timer_replay.wanted)
    for message, record in zip(found, wanted, strict=True):
        start, end = record.physical_offset, record.physical_offset + record.store_size
        if record.topic != "rmq_sys_wheel_timer":
            # Delivered ones have RocketMQ's order too.
            assert timer_replay.store.log[start:end] == timer_replay.wanted[start:end]
        assert message.store_timestamp == record.store_timestamp
    timer_replay.check_queues()


def test_timer_gives_the_same_files(timer_replay):
    golden, root = timer_replay.golden.root, timer_replay.root
    for name in ("timerlog/00000000000000000000", "timerwheel"):
        assert (root / name).read_bytes() == (golden / name).read_bytes()
    wanted = TimerCheckpoint.decode((golden / "config" / "timercheck").read_bytes())
    data = (root / "config" / "timercheck").read_bytes()
    assert len(data) == layout.CHECKPOINT_SIZE
    found = TimerCheckpoint.decode(data)
    # RocketMQ counts a version each second, even if nothing happens.
    assert found.version_timestamp == wanted.version_timestamp
    for name in ("last_read_time", "flushed_position", "queue_offset", "primary_queue_offset"):
        assert getattr(found, name) == getattr(wanted, name)
    metrics = (root / "config" / "timermetrics").read_bytes()
    assert metrics == (golden / "config" / "timermetrics").read_bytes()


def test_timer_of_the_reference_is_gone_on_with(stores, tmp_path):
    """A store that RocketMQ closed: what waits is delivered, what was delivered is not."""
    golden = stores.copy("v5-timer", tmp_path)
    replay = TimerReplay(golden, golden.root)
    replay.set_clock(1_794_778_440_000)
    for record in replay.records:
        replay.store.append(
            AppendRequest(
                message=Message(
                    topic=record.topic,
                    body=record.stored_body,
                    properties=record.properties,
                ),
                queue_id=record.queue_id,
                born_timestamp=record.born_timestamp,
                born_host=record.born_host,
            )
        )
    assert len(replay.store.log) == len(replay.wanted)
    replay.timer.load()
    replay.timer.run_once()
    assert len(replay.store.log) == len(replay.wanted)
    assert replay.timer.waiting_counts == {"TimerTopic": 3}
    replay.set_clock(1_794_782_026_000)
    replay.timer.run_once()
    assert replay.store.bodies("TimerTopic")[-2:] == [b"in an hour", b"in an hour too"]
    replay.set_clock(1_795_030_426_000)
    replay.timer.run_once()
    assert len(replay.store.messages("rmq_sys_wheel_timer")) == 7
    assert replay.store.bodies("TimerTopic")[-1] == b"70 hours: rolled"
    replay.timer.close()
    assert (
        json.loads((golden.root / "config" / "timermetrics").read_text())["timingCount"][
            "TimerTopic"
        ]["count"]
        == 0
    )


def test_levels_and_timers_have_a_place_in_the_options():
    assert LEVELS.max_level == 18
    assert LEVELS.delay_ms(18) == 7_200_000
    assert LEVELS.delay_ms(19) == 7_200_000
    assert DelayLevels(()).delay_ms(3) == 1000
    assert LEVELS.clamp(30) == 18
    assert LEVELS.due(3, 100) == 10_100
    assert LEVELS.correct_due(1, 5_001, 4_000) == 4_000
    assert LEVELS.correct_due(1, 5_000, 4_000) == 5_000
