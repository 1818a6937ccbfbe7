"""`rocketlake verify` and `repair`: words, numbers and exit codes."""

import pytest

from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_lock import StoreLock
from rocketlake.format.queue_unit import QueueUnit
from support import command
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path / "store", log_file_size=1000).records(30).record("U", keys=["k"])


def damaged(builder):
    return builder.unit("T", 0, 17, QueueUnit(81, 120, 0)).unit("T", 0, 3, bytes(20)).write()


def test_sound_store(builder):
    ran = command.run("verify", builder.write())
    assert ran.code == 0
    assert "31 records" in ran.out
    assert "no findings: sound" in ran.out


def test_plan_is_shown_and_nothing_read(builder):
    ran = command.run("verify", damaged(builder), "--dry-run", "--only", "log")
    assert ran.code == 0
    assert f"check log of {builder.root}" in ran.out
    assert "in 4 files of the log and 0 of the index" in ran.out
    found = command.run("verify", builder.root, "--dry-run", "--json").json
    assert (found["log_files"], found["index_files"]) == (4, 1)


def test_options_of_spark_need_a_master(builder):
    ran = command.run("verify", builder.write(), "--py-files", "x.zip")
    assert ran.code == 2
    assert "--py-files is for Spark: give --master too" in ran.err


def test_findings_as_a_table(builder):
    ran = command.run("verify", damaged(builder))
    assert ran.code == 1
    assert "Queue units: 2" in ran.out
    assert "queue T/0: unit 17 points to 81, where no record begins" in ran.out
    assert "2 findings: not sound" in ran.out


def test_findings_as_an_object(builder):
    ran = command.run("verify", damaged(builder), "--json", "--jobs", "2")
    assert ran.code == 1
    found = ran.json
    assert [set(finding) for finding in found["findings"]] == [{"path", "position", "reason"}] * 2
    assert found["findings"][1]["path"] == str(builder.queue_path("T", 0))
    assert found["findings"][1]["position"] == 17 * 20
    summary = found["summary"]
    assert (summary["findings"], summary["records"]) == (2, 31)
    assert summary["kinds"] == {"queue units": 2}
    assert summary["pending"]["notDispatched"] == 0


def test_limit(builder):
    root = damaged(builder)
    ran = command.run("verify", root, "--limit", "1")
    assert "and 1 more" in ran.out
    assert "unit 17" not in ran.out
    assert len(command.run("verify", root, "--json", "--limit", "1").json["findings"]) == 1


def test_only_a_part(builder):
    assert command.run("verify", damaged(builder), "--only", "log").code == 0
    assert command.run("verify", builder.root, "--only", "log", "--only", "queues").code == 1


def test_pending_work_is_told(builder):
    builder.record(dispatched=False).unclean().checkpoint(1, 1, 1)
    ran = command.run("verify", builder.write())
    assert ran.code == 0
    assert "pending: 1 messages that a start puts into their queues" in ran.out


def test_no_store(tmp_path):
    for name in ("verify", "repair"):
        ran = command.run(name, tmp_path / "none")
        assert ran.code == 2
        assert "no store at" in ran.err
    assert not (tmp_path / "none").exists()


def test_repair_shows_asks_and_does(builder):
    root = damaged(builder)
    ran = command.run("repair", root, "--dry-run")
    assert ran.code == 1
    assert "repair: queue T/0 is built anew from the log" in ran.out
    assert not (root / "repair").exists()
    ran = command.run("repair", root)
    assert ran.code == 2
    assert "--yes" in ran.err
    assert not (root / "repair").exists()
    ran = command.run("repair", root, "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert f"replaced files are kept in {root}/repair/" in ran.out
    assert command.run("verify", root).code == 0
    assert command.run("repair", root).code == 0


def test_repair_says_what_it_cannot_do(builder):
    ran = command.run("repair", builder.flip_body(5).write(), "--yes")
    assert ran.code == 1
    assert "cannot be repaired: " in ran.out


def test_repair_that_cannot_repair_names_the_next_command(builder):
    """The command works as it is printed."""
    root = builder.flip_body(5).write()
    ran = command.run("repair", root, "--dry-run")
    assert f"next: rocketlake salvage --from {root}/commitlog --out FILE: " in ran.out
    out = root.parent / "rescued.jsonl"
    assert command.run("salvage", "--from", root / "commitlog", "--out", out).code == 0
    assert len(out.read_text().splitlines()) == len(builder.placed) - 1
    builder.unclean().checkpoint(0, 0, 0).write()
    ran = command.run("repair", root, "--dry-run")
    assert f"next: rocketlake salvage {root}: " in ran.out
    (line,) = command.run("salvage", root, "--json").lines
    assert line["records"] == len(builder.placed) - 1


def test_repair_of_a_store_in_use(builder):
    root = damaged(builder)
    lock = StoreLock(PosixFileOps(), root)
    lock.acquire()
    try:
        ran = command.run("repair", root, "--yes")
    finally:
        lock.release()
    assert ran.code == 2
    assert "is locked" in ran.err
