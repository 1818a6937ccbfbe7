"""Damaged files of an archive: noticed whatever byte changed, named, and passed over on request."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from archive_parts import GrowingStore, Row, archive_here, read_here

from rocketlake.errors import StoreError
from rocketlake.spark.jobs.archive import parquet_file
from rocketlake.spark.reading.batch_reader import make_reader
from rocketlake.spark.schema import MESSAGE_SCHEMA

_ROWS = 400


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    store = GrowingStore(tmp_path / "broker-a")
    store.grow(_ROWS, ["orders", "payments"])
    archive_here(store.path, tmp_path / "archive")
    return tmp_path / "archive"


def _read(archive: Path, **options: object) -> list[Row]:
    return read_here(archive=archive, topicPattern=".*", **options)


def _victim(archive: Path) -> Path:
    return next(archive.glob("topic=orders/*/*.parquet"))


def _failure(archive: Path) -> str | None:
    try:
        _read(archive)
    except StoreError as error:
        return str(error)
    return None


def test_no_changed_byte_changes_a_message(archive: Path) -> None:
    """Pages had no checksum, and the sha256 of the manifest was compared by `archive` alone."""
    full, victim = _read(archive), _victim(archive)
    whole, rnd = victim.read_bytes(), random.Random(7)
    noticed = 0
    for _ in range(60):
        at, width = rnd.randrange(len(whole)), rnd.choice([1, 4, 30])
        changed = bytes(byte ^ 0x55 for byte in whole[at : at + width])
        victim.write_bytes(whole[:at] + changed + whole[at + width :])
        rest = _read(archive, onDamage="skip")
        said = _failure(archive)
        if said is None:
            assert rest == full == _read(archive)
            continue
        assert f"{victim.name} of the archive {archive} is damaged: " in said
        assert "restore the file from a copy, or option onDamage = skip" in said
        noticed += 1
        others = [row for row in full if row["topic"] == "payments"]
        assert [row for row in rest if row["topic"] == "payments"] == others
        assert all(row in full for row in rest)
    assert noticed > 50  # what a reader never looks at may change


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda path: path.unlink(), "it is gone, and _manifest.json names it"),
        (lambda path: path.write_bytes(b""), "it has 0 bytes, the manifest says"),
        (lambda path: path.write_bytes(path.read_bytes()[:-8]), "it has .* bytes, the manifest"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-20] + bytes(12) + b"\0\0\0\0PAR1"),
            "the sha256 of its footer is not that of the manifest",
        ),
    ],
)
def test_a_damaged_file_is_named_and_passed_over(
    archive: Path, damage: Callable[[Path], object], text: str
) -> None:
    """With `skip` too, a file that was gone ended the query."""
    full = _read(archive)
    damage(_victim(archive))
    with pytest.raises(StoreError, match=f"is damaged: {text}.*onDamage = skip"):
        _read(archive)
    assert _read(archive, onDamage="skip") == [row for row in full if row["topic"] == "payments"]


def test_other_row_groups_of_a_damaged_file_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_file, "GROUP_ROWS", 50)
    store = GrowingStore(tmp_path / "broker-a")
    archive = tmp_path / "archive"
    for _ in range(2):
        store.grow(_ROWS, ["orders"])
        archive_here(store.path, archive)
    full, victim = _read(archive), _victim(archive)
    with pq.ParquetFile(victim) as file:
        assert file.metadata.num_row_groups == 2
        at = file.metadata.row_group(1).column(0).data_page_offset + 40
        damaged = file.metadata.row_group(1).num_rows
    with victim.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 8)
    assert len(_read(archive, onDamage="skip")) == len(full) - damaged


def test_an_archive_of_an_earlier_release_is_read(archive: Path) -> None:
    """Its manifest has no sha256 of footers; size and rows are compared."""
    full, path = _read(archive), archive / "_manifest.json"
    manifest = json.loads(path.read_text())
    for file in manifest["files"]:
        del file["footer_sha256"]
    path.write_text(json.dumps(manifest))
    assert _read(archive) == full
    manifest["files"][0]["rows"] += 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=r"it has \d+ messages, the manifest says"):
        _read(archive)


def test_an_archive_that_this_machine_does_not_see_is_no_damage(archive: Path) -> None:
    """It is never passed over: a directory that is not shared would be an empty archive."""
    given = {"archive": str(archive), "topic": "orders", "onDamage": "skip"}
    reader = make_reader(given, MESSAGE_SCHEMA)
    (partition,) = reader.partitions()
    archive.rename(archive.with_name("elsewhere"))
    with pytest.raises(StoreError, match=r"the executor on .* cannot see"):
        list(reader.read(partition))
