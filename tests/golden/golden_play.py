"""Our store in RocketMQ's place: the same options, clock, topics, filters, puts and end.

played = play(golden, tmp_path)
played.receipts, played.ours, played.theirs
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from rocketlake.delay.services import DelayServices
from rocketlake.delay.store_access import DelayStore, DueRequest
from rocketlake.files.mapped_file_queue import Expiry
from rocketlake.files.ops import PosixFileOps
from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt
from rocketlake.store.dispatch.filter_bits import FilterBits, SqlSubscription
from rocketlake.store.message_store import MessageStore
from support.engine import open_engine
from support.golden import Golden, GoldenCase
from support.manual_clock import ManualClock
from support.spec_player import Step, steps_of
from support.store_bytes import Files, bytes_of, damaged

COMPAT = {"v55": "5.5", "v5": "5.3", "v4": "4.9", "v46": "4.6"}

# What the driver sets by itself (StoreDriver#defaults), as far as a store has it.
DRIVER_OPTIONS = {
    "cleanFileForciblyEnable": False,
    "diskMaxUsedSpaceRatio": 95,
    "timerWheelEnable": False,
}

HOUR_MS = 3_600_000


class Played(Struct, frozen=True):
    """A case that was played: what was asked and answered, and the bytes of both stores."""

    golden: Golden
    steps: list[Step]
    receipts: list[PutReceipt]
    ours: Files
    theirs: Files

    def __repr__(self) -> str:
        return self.golden.case.name


def play(golden: Golden, place: Path) -> Played:
    """Play a case into a new store and take its bytes as RocketMQ's were taken."""
    case, root = golden.case, place / "store"
    steps = steps_of(golden)
    stage = Stage(case, root, steps[0].at)
    store = stage.store
    try:
        receipts = stage.put_all(steps)
        store.catch_up()
        if "expire" in case.spec:
            expire(store, case.spec["expire"]["files"])
        if case.spec.get("exit") == "kill":
            root = Path(shutil.copytree(root, place / "killed"))
    finally:
        stage.close()
    ours = bytes_of(root, Golden(case, root).log_dirs)
    theirs = bytes_of(golden.root, golden.log_dirs)
    return Played(golden, steps, receipts, damaged(ours, case), theirs)


class Stage:
    """A store as the driver opened RocketMQ's, and what delivers its delayed messages."""

    def __init__(self, case: GoldenCase, root: Path, now_ms: int) -> None:
        spec = case.spec
        self.clock = ManualClock(now_ms)
        self.store = store = open_engine(
            root,
            self.clock,
            source={**DRIVER_OPTIONS, **case.options(root)},
            batch_topics=[topic["name"] for topic in spec.get("topics", ())],
            compat_version=COMPAT[case.name.split("-")[0]],
        )
        # 5.x looks at the length of a topic in a hook of the broker, which not all cases have.
        store.parts.putter.limits_topics = not case.is_5x or bool(spec.get("broker"))
        if spec.get("filters") and store.options.enable_calc_filter_bit_map:
            store.add_dispatcher(make_filter_bits(spec["filters"]), is_first=True)
        self._due: list[Step] = []
        self._receipts: list[PutReceipt] = []
        door = DelayStore(self._put_due, store.sync, queues=store.queues, log=store.log)
        self.delay = DelayServices(door, root, store.options, ops=PosixFileOps(), clock=self.clock)
        store.add_hook(self.delay.hook)

    def put_all(self, steps: Sequence[Step]) -> list[PutReceipt]:
        """Put each step at the time of its golden record."""
        for number, step in enumerate(steps):
            if len(self._receipts) > number:
                continue  # delivered together with one before it
            self._set_clock(step.at)
            if is_delivery(step):
                self._deliver(steps[number:])
            else:
                self._receipts.append(self._put(step))
        return self._receipts

    def close(self) -> None:
        """Close everything; the progress of delayed messages is written."""
        self.delay.close()
        self.store.close()

    def _put(self, step: Step) -> PutReceipt:
        if isinstance(step.request, BatchRequest):
            return self.store.put_batch(step.request)
        request = step.request
        if step.by_broker:
            fields = {name: getattr(request, name) for name in request.__struct_fields__}
            request = DueRequest(**fields)
        return self.store.put(request)

    def _deliver(self, steps: Sequence[Step]) -> None:
        """Let the level scheduler deliver; it puts at the times at which RocketMQ's did."""
        self._due = [step for step in steps if is_delivery(step)]
        before = len(self._receipts)
        self.store.catch_up()
        self.delay.levels.run_once()
        assert len(self._receipts) > before, "nothing was due"

    def _put_due(self, request: AppendRequest) -> PutReceipt:
        self._set_clock(self._due.pop(0).at)
        self._receipts.append(self.store.put(request))
        return self._receipts[-1]

    def _set_clock(self, now_ms: int) -> None:
        self.clock.advance_ms(now_ms - self.clock.now_ms())


def is_delivery(step: Step) -> bool:
    """Tell whether the level scheduler wrote a record, and not the put of a message."""
    return step.by_broker and not step.wanted and "DELAY" in step.records[0].properties


def expire(store: MessageStore, count: int) -> None:
    """Age the first files of the log and remove what is expired (StoreWriter#expire)."""
    store.flush()
    files = store.parts.log_parts.files
    old_s = (store.clock.now_ms() - 100 * HOUR_MS) // 1000
    for file in files.files[:count]:
        os.utime(file.path, (old_s, old_s))
    deleted = files.delete_expired(Expiry(reserved_ms=72 * HOUR_MS), lambda _: False)
    assert deleted == count
    log_min = store.log.min_offset
    store.queues.delete_expired(log_min)
    assert store.index is not None
    store.index.delete_expired(log_min)


def make_filter_bits(filters: Sequence[Mapping[str, str]]) -> FilterBits:
    """Compute bits for the subscriptions of a spec."""
    bloom = BloomFilter.sized()
    found: dict[str, list[SqlSubscription]] = {}
    for one in filters:
        positions = bloom.bit_positions(one["group"], one["topic"])
        wanted = SqlSubscription(SqlFilter(one["expression"]), positions)
        found.setdefault(one["topic"], []).append(wanted)
    return FilterBits(bloom, lambda topic: found.get(topic, []))
