"""verify on stores that RocketMQ wrote: sound ones are sound, damage is named, repair mends it."""

import shutil

import pytest

from rocketlake.format import names
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.repair.repairer import Repairer
from rocketlake.upkeep.verify.findings import Kind
from rocketlake.upkeep.verify.verifier import Verifier
from support.golden import Golden, GoldenStores

EXPECTED = {
    "clean-garbage": (Kind.LOG_END, "the lengths of a record do not add up, and no good record"),
    "unclean-crc": (Kind.RECORD, "a record does not have its checksum; records go on at"),
    "config": (Kind.PROGRESS, "group CG_1 is at 99 of TopicTest/0, which ends at 1"),
}
"""Cases with damage, or with a table that says the impossible."""


def test_findings_of_each_store(golden: Golden):
    verifier = Verifier(golden.root)
    summary = verifier.run()
    expected = EXPECTED.get(golden.case.name.partition("-")[2])
    if expected is None:
        assert verifier.ledger.faults == []
        assert summary.is_sound
    else:
        (fault,) = verifier.ledger.faults
        assert (fault.kind, fault.reason.startswith(expected[1])) == (expected[0], True)
    assert summary.records > 0


@pytest.mark.parametrize(
    ("name", "pending"),
    [
        ("v5-unclean-kill", (0, 0, 0, 60)),
        ("v5-unclean-garbage", (188, 0, 0, 60)),
        ("v5-unclean-noqueue", (0, 20, 0, 60)),
        ("v4-unclean-noqueue", (0, 20, 0, 60)),
    ],
)
def test_what_a_start_repairs_is_pending(stores: GoldenStores, name, pending):
    found = Verifier(stores.get(name).root).run().pending
    assert (
        *(found.torn_bytes, found.not_dispatched),
        *(found.units_to_cut, found.keys_to_index),
    ) == pending


def test_unit_of_a_torn_record_is_cut_by_a_start(stores: GoldenStores):
    found = Verifier(stores.get("v5-unclean-torn").root).run()
    assert found.is_sound
    assert found.pending.torn_bytes > 0
    assert found.pending.units_to_cut == 1


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["v55-index", "v5-index"])
def test_rebuilt_index_is_that_of_rocketmq(tmp_path, stores: GoldenStores, name):
    golden = stores.get(name)
    root = shutil.copytree(golden.root, tmp_path / "store")
    files = sorted((root / "index").iterdir())
    whole = [path.read_bytes() for path in files]
    flip(files[0], 40 + 4 * 10 + 20 * 3 + 7)
    repairer = Repairer(lambda: OfflineStore(root), root, jobs=1)
    repairer.start()
    try:
        summary, plan = repairer.verify()
        assert not summary.is_sound
        repairer.act(plan)
        assert repairer.verify()[0].is_sound
    finally:
        repairer.close()
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == whole


@pytest.mark.parametrize(
    "name",
    ["v5-roll", "v5-ext", "v5-batchcq", "v5-lmq", "v5-delay-before", "v5-multi-dir", "v46-index"],
)
def test_rebuilt_queues_are_those_of_rocketmq(tmp_path, stores: GoldenStores, name):
    golden = stores.get(name)
    root = shutil.copytree(golden.root, tmp_path / "store")
    families = (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE)
    files = [path for family in families for path in sorted(root.glob(f"{family}/*/*/*"))]
    for path in files:
        flip(path, 5)
    repairer = Repairer(lambda: OfflineStore(root), root, jobs=1)
    repairer.start()
    try:
        summary, plan = repairer.verify()
        assert not summary.is_sound
        assert plan.hopeless == []
        kept = repairer.act(plan)
        assert repairer.verify()[0].is_sound
    finally:
        repairer.close()
    for path in files:
        place = path.relative_to(root)
        assert path.read_bytes() == (golden.root / place).read_bytes()
        assert (kept / "old" / place).exists()
