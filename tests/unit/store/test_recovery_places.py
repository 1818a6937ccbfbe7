"""Units that are lost together with the log they were made from: the others keep their places."""

import shutil

import pytest

from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest, GetStatus
from rocketlake.store.offline import OfflineStore
from support.engine import open_engine, request

COUNT = 200
LIGHT = "%LMQ%light"
KINDS = {
    "plain": {},
    "plain, 4.9": {"compat_version": "4.9"},
    "extended": {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 4096},
    "batch": {"batch_topics": ["T"], "mapper_file_size_batch_consume_queue": 10 * 46},
    "light": {"enable_lmq": True, "enable_multi_dispatch": True},
}


def put(store, numbers):
    for number in numbers:
        fields = {"properties": {"INNER_MULTI_DISPATCH": LIGHT}} if store.options.enable_lmq else {}
        receipt = store.put(request("T", 0, b"%d" % number + bytes(100), **fields))
        assert receipt.is_ok, receipt
        assert receipt.queue_offset == number


def read(store, key):
    low, high = store.queue_bounds(key)
    found = {}
    offset = low
    while offset < high:
        asked = GetRequest(topic=key.topic, queue_id=key.queue_id, offset=offset)
        result = store.get(asked)
        assert result.status is GetStatus.FOUND, f"{offset}: {result.status}"
        for message in result.messages:
            found[offset] = int(message.body.rstrip(b"\0"))
            offset += 1
    assert offset == high
    return found


def lose(store_dir, *, units_from, log_files):
    """Take the newest files of each queue and the oldest of the log, as a power cut may."""
    for family in ("consumequeue", "batchconsumequeue"):
        for queue in (store_dir / family).glob("*/*"):
            for file in sorted(queue.iterdir())[units_from:]:
                file.unlink()
    for file in sorted((store_dir / "commitlog").iterdir())[:log_files]:
        file.unlink()
    (store_dir / "checkpoint").unlink(missing_ok=True)
    assert (store_dir / "abort").exists()


@pytest.fixture(params=KINDS)
def options(request):
    return KINDS[request.param]


@pytest.mark.parametrize("units_from", [0, 1, 5], ids=["no units", "one file", "five files"])
def test_units_are_placed_by_the_offsets_of_their_records(tmp_path, options, units_from):
    made, left = tmp_path / "made", tmp_path / "left"
    with open_engine(made, **options) as store:
        put(store, range(COUNT))
        store.catch_up()
        store.flush()
        shutil.copytree(made, left)
    lose(left, units_from=units_from, log_files=5)
    keys = [QueueKey("T", 0), *([QueueKey(LIGHT, 0)] if "enable_lmq" in options else [])]
    with OfflineStore(left) as view:
        shown = {}
        for batch in view.messages(QueueKey("T", 0)):
            for message in batch.columns.messages():
                shown[message.queue_offset] = int(message.body.rstrip(b"\0"))
        bounds = view.queues[QueueKey("T", 0)]
        assert (bounds.min_offset, bounds.max_offset) == (min(shown), COUNT)
    with open_engine(left, **options) as store:
        for key in keys:
            found = read(store, key)
            assert found == {number: number for number in range(min(found), COUNT)}
            assert len(found) > COUNT // 3
            assert found == shown, "the read-only view shows what recovery leaves"
        put(store, range(COUNT, COUNT + 20))
        assert read(store, keys[0])[COUNT + 19] == COUNT + 19
    with open_engine(left, **options) as store:
        assert read(store, keys[0]) == {number: number for number in range(min(found), COUNT + 20)}


def test_power_goes_while_a_queue_begins_anew(tmp_path):
    """What is left of the old files and of the new ones makes no difference."""
    made, left = tmp_path / "made", tmp_path / "left"
    with open_engine(made) as store:
        put(store, range(COUNT))
        store.catch_up()
        store.flush()
        shutil.copytree(made, left)
    lose(left, units_from=2, log_files=5)
    again = tmp_path / "again"
    with open_engine(left) as store:
        wanted = read(store, QueueKey("T", 0))
        store.parts.queues.flush(0)
        shutil.copytree(left, again)
    # Names that were removed may come back.
    queue = again / "consumequeue/T/0"
    for name in (f"{0:020d}", f"{200:020d}"):
        shutil.copy(made / "consumequeue/T/0" / name, queue / name)
    with open_engine(again) as store:
        assert read(store, QueueKey("T", 0)) == wanted
        put(store, range(COUNT, COUNT + 1))
