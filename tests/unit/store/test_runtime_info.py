"""What a running store says of itself."""

from rocketlake.embedded.open_store import open_store
from rocketlake.model.message import Message
from rocketlake.store.running_flags import RunningFlag

SMALL = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_message_size": 1024,
    "max_hash_slot_num": 10,
    "max_index_num": 8,
}


def test_mapped_totals_are_those_of_all_files(tmp_path):
    with open_store(tmp_path, **SMALL) as store:
        for number in range(60):
            store.put(Message(topic="T", body=bytes(100), keys=[f"k{number}"]))
        store.query("T", "k59")
        info = store.info()
        families = ("commitlog", "consumequeue", "index")
        found = [path for family in families for path in (tmp_path / family).rglob("*[0-9]")]
        sizes = [path.stat().st_size for path in found if path.is_file()]
        ahead = int(info["mappedFiles"]) < len(sizes)  # a file made ahead is not in use yet
        assert len(sizes) - 1 <= int(info["mappedFiles"]) <= len(sizes)
        assert int(info["mappedBytes"]) == sum(sizes) - 4096 * ahead
        assert len(sizes) > 12


def test_most_that_was_dispatched_at_once_is_told(tmp_path):
    with open_store(tmp_path) as store:
        assert store.info()["dispatchMaxBuffer"] == "0"
        receipt = store.put(Message(topic="T", body=bytes(100)), 0)
        assert store.get("T", 0, 0).messages
        assert int(store.info()["dispatchMaxBuffer"]) >= receipt.size


def test_flags_are_told(tmp_path):
    with open_store(tmp_path) as store:
        assert store.info()["runningFlags"] == "OK"
        store._engine.flags.mark(RunningFlag.LOGICS_QUEUE_ERROR)
        assert store.info()["runningFlags"] == "LOGICS_QUEUE_ERROR"
        store._engine.flags.clear(RunningFlag.LOGICS_QUEUE_ERROR)
