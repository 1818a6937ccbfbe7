"""Parts of a log cover each record once, wherever it is cut, and whatever lies there."""

import random

import numpy as np
import pytest

import rocketlake
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import record
from rocketlake.format.record import Check, Envelope
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.spark.jobs.dispatch.parts import LogShape, cut, tasks_of
from rocketlake.spark.jobs.dispatch.unit_blocks import Rules, make_part
from rocketlake.spark.jobs.dispatch.writer import adjoining_parts
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.repair.rebuild import walk_log
from rocketlake.upkeep.verify.store_layout import look

BODY_AT = 88  # in a record whose hosts are IPv4
HOST = Endpoint.parse("127.0.0.1:10911")
RULES = Rules(delays_ms=[1000])


def fake_record(offset):
    """A good record that claims to lie at an offset: as the body of a message it does."""
    envelope = Envelope(queue_id=0, born_timestamp=1, born_host=HOST, store_host=HOST)
    made = record.encode(Message(topic="T", body=b"fake", keys=["no"]), envelope)
    record.seal(made, 0, 7, offset, 1, False)
    return bytes(made)


def write(root, seed):
    """A log of several files, with bodies that look like records, and some that are large."""
    rng = random.Random(seed)
    with rocketlake.open_store(root, mapped_file_size_commit_log=16 << 10) as store:
        store.create_topic("T", queues=2)
        for number in range(60):
            where = store.put(Message(topic="T", body=b"a"), queue_id=0)
            begin = where.physical_offset + where.size
            body = fake_record(begin + BODY_AT)
            if number % 3:
                body = rng.randbytes(rng.choice([0, 10, 500, 3000]))
            store.put(Message(topic="T", body=body, keys=[f"k{number}"]), queue_id=1)
    return root


def shape_of(root, *, passes_bad=True):
    with OfflineStore(root) as store:
        found = look(store)
        return found, LogShape(
            root=root,
            log_files=found.log_files,
            log_file_size=found.log_file_size,
            checks=int(Check.OFFSET | Check.BODY_CRC),
            end=store.max_offset,
            passes_bad=passes_bad,
        )


def offsets_of(shape, part_bytes):
    """The physical offsets in all units, and in all keys, of a log that is cut into parts."""
    parts = cut(shape, shape.log_min, part_bytes=part_bytes)
    results = (make_part(shape, part, RULES) for part in parts)
    units, keys, redone = [], [], 0
    for result in adjoining_parts(results, shape, RULES, shape.log_min):
        redone += result.facts.part.is_proven
        for block in result.blocks:
            units += block.decode()["physical_offset"].tolist()
        keys += result.keys.physical_offsets.tolist()
    return sorted(units), keys, redone


@pytest.mark.parametrize("seed", range(3))
def test_every_record_once_whatever_the_cut(tmp_path, seed):
    _, shape = shape_of(write(tmp_path, seed))
    wanted = offsets_of(shape, 1 << 30)
    assert len(wanted[0]) == len(set(wanted[0])) == 120
    rng = random.Random(seed)
    redone = 0
    for part_bytes in (64, 89, 400, 600, 900, *(rng.randint(60, 5000) for _ in range(10))):
        found = offsets_of(shape, part_bytes)
        assert found[:2] == wanted[:2], part_bytes
        redone += found[2] - len(shape.log_files)
    assert redone > 0, "some cuts lay before a body that looks like a record, and were put right"


@pytest.mark.parametrize("passes_bad", [True, False])
def test_bad_bytes_end_a_file_or_are_passed(tmp_path, passes_bad):
    write(tmp_path, 5)
    found, shape = shape_of(tmp_path, passes_bad=passes_bad)
    places = np.concatenate([c["physical_offset"] for c in walk_log(found, PosixFileOps())])
    file = shape.log_files[1]
    bad = int(places[np.searchsorted(places, file.base_offset) + 3])
    with file.path.open("r+b") as log:
        log.seek(bad - file.base_offset + 4)
        log.write(b"\xff" * 30)
    wanted = offsets_of(shape, 1 << 30)
    following = int(places[np.searchsorted(places, bad) + 1])
    assert bad not in wanted[0]
    assert (following in wanted[0]) == passes_bad
    assert max(wanted[0]) > file.base_offset + file.size, "later files come in any case"
    for part_bytes in (64, 200, 777, 4000):
        assert offsets_of(shape, part_bytes)[:2] == wanted[:2], part_bytes


def test_small_parts_share_a_task(tmp_path):
    _, shape = shape_of(write(tmp_path, 1))
    parts = cut(shape, 0, part_bytes=1000)
    tasks = tasks_of(parts, part_bytes=10_000)
    assert [part for task in tasks for part in task] == parts
    assert len(parts) > len(tasks) > 1
