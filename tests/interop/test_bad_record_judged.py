"""A record whose lengths do not add up, in a log that is dispatched: RocketMQ judges.

4.9.7 does not look at early files when it starts, and dispatches them all if there are no queues.
"""

import json
import shutil
import struct
from base64 import b64decode
from pathlib import Path

import pytest
from reference_store import ReferenceStore

from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest
from support.engine import open_engine, request

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

VERSION = "4.9.7"
SIZES = {
    "mappedFileSizeCommitLog": 4096,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 10,
    "maxIndexNum": 40,
}
COUNT, BAD = 60, 4
CHANGES = {"size too small": (0, 120), "size too large": (0, 700), "body length": (84, 1 << 20)}


def damaged(root: Path, change: str) -> int:
    """Make a closed store whose queues are lost, with a bad record in its first file.

    Returns:
        The end of its log.
    """
    with open_engine(root, source=SIZES, compat_version="4.9") as store:
        places = [
            store.put(request("T", 0, b"%d" % n + bytes(200))).physical_offset for n in range(COUNT)
        ]
        end = store.log.wrote_where
    at, value = CHANGES[change]
    file = root / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[places[BAD] + at : places[BAD] + at + 4] = struct.pack(">i", value)
    file.write_bytes(data)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    (root / "inventory.json").unlink()
    assert not (root / "abort").exists()
    return end


def number_of(body: bytes) -> int:
    return int(body.rstrip(b"\0"))


def read_ours(log: bytes, root: Path, role: str) -> dict[int, int]:
    """Queue offsets and the numbers of their messages, in a store that got the log's bytes."""
    found = {}
    with open_engine(root, source=SIZES, compat_version="4.9", broker_role=role) as store:
        with store.log.pause():  # no put has made these bytes, and a primary takes no raw ones
            for begin in range(0, len(log), 4096):
                file = store.log.files.last_file(create_at=begin)
                assert file.append(log[begin : begin + 4096])
        store.log.note_readable()
        store.catch_up()
        low, high = store.queue_bounds(QueueKey("T", 0))
        for offset in range(low, high):
            asked = GetRequest(topic="T", queue_id=0, offset=offset, max_messages=1)
            for message in store.get(asked).messages:
                found[message.queue_offset] = number_of(message.body)
    return found


@pytest.mark.parametrize("role", ["SLAVE", "ASYNC_MASTER"])
def test_we_read_what_rocketmq_reads_and_more(tmp_path: Path, role: str):
    """Each message with the queue offset that it has: RocketMQ closes gaps up."""
    stores = {tmp_path / change.replace(" ", "-"): change for change in CHANGES}
    ends = {store: damaged(store, change) for store, change in stores.items()}
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"options": SIZES, "messages": []}), encoding="utf-8")
    release = ReferenceStore(VERSION)
    theirs = {}
    for store in stores:
        root = tmp_path / f"theirs-{store.name}"
        shutil.copytree(store, root)
        if role != "SLAVE":  # a dump is made as a replica
            release.recover(root, spec)
        theirs[store] = root
    answers = release.dump([*theirs.values()], spec)
    for store, change in stores.items():
        answer = answers[theirs[store]]
        assert answer.loads, answer.error
        read = {number_of(b64decode(line["body"])) for line in answer.messages}
        assert len(read) > BAD - 1
        log = b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))
        ours = read_ours(log[: ends[store]], tmp_path / f"ours-{store.name}", role)
        assert ours == {number: number for number in range(COUNT) if number != BAD}, change
        assert read - {BAD} <= {*ours.values()}
