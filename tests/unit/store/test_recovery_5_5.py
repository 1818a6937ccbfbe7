"""A killed store that RocketMQ 5.5 has flushed: what 5.5 does not read does not end the log.

The checkpoint says at byte 40 how far units were flushed. 5.5 begins there, ten files from the end
at most [CommitLog#recoverAbnormally].
"""

import pytest

from rocketlake.format.checkpoint import Checkpoint
from rocketlake.store.offline import OfflineStore
from support.engine import open_engine, request
from support.reading import bodies, offsets
from support.store_builder import BEGIN_MS, StoreBuilder

FILE = 1000
PER_FILE = 3


def killed(root, files, flushed_to, *, bad=(), dispatched=True):
    """Files of three records; the checkpoint has no times, so that by time all is read."""
    builder = StoreBuilder(root, log_file_size=FILE)
    for number in range(files * PER_FILE):
        if number and number % PER_FILE == 0:
            builder.roll()
        builder.record("T", 0, b"%d" % number, dispatched=dispatched)
    for number in bad:
        builder.flip_body(number)
    builder._checkpoint = Checkpoint(queue_physical_offset=flushed_to)
    return builder.unclean().write()


def ours(root):
    """The bodies that our recovery leaves, and how the log was cut."""
    options = {"mapped_file_size_commit_log": FILE, "mapped_file_size_consume_queue": 400}
    with open_engine(root, **options) as store:
        assert store.recovery is not None
        report = store.recovery
    with OfflineStore(root) as view:
        return bodies(view), report


@pytest.mark.parametrize(
    ("files", "flushed_to", "first"),
    [
        (4, 2 * FILE + 10, 2),  # the last unit points into this file
        (4, 2 * FILE, 2),
        (4, 2 * FILE - 1, 1),
        (14, 3 * FILE, 4),  # ten files, not eleven
        (14, 20 * FILE, 13),
    ],
)
def test_damage_before_the_file_where_5_5_begins_does_not_end_the_log(
    tmp_path, files, flushed_to, first
):
    bad = first * PER_FILE - 1
    root = killed(tmp_path / "before", files, flushed_to, bad=[bad])
    wanted = [b"%d" % number for number in range(files * PER_FILE) if number != bad]
    with OfflineStore(root) as view:
        assert bodies(view) == wanted
    found, report = ours(root)
    assert found == wanted
    assert report.cut_bytes == 0

    root = killed(tmp_path / "in it", files, flushed_to, bad=[bad + 1])
    with OfflineStore(root) as view:
        assert bodies(view) == [*wanted[:bad], b"%d" % bad]
    assert ours(root)[0] == [*wanted[:bad], b"%d" % bad]


def test_without_its_offset_the_log_ends_at_the_damage(tmp_path):
    """As it does in every release before 5.5."""
    root = killed(tmp_path, 4, 0, bad=[2])
    assert ours(root)[0] == [b"0", b"1"]


def test_files_made_ahead_count(tmp_path):
    """Two empty ones leave eight."""
    builder_root = killed(tmp_path, 12, 1, bad=[3 * PER_FILE])
    for number in (12, 13):
        (builder_root / "commitlog" / f"{number * FILE:020d}").write_bytes(bytes(FILE))
    assert len(ours(builder_root)[0]) == 12 * PER_FILE - 1


def test_units_that_no_queue_holds_are_found_behind_the_damage(tmp_path):
    """Behind a flushed offset that is older than the times of the checkpoint, too."""
    root = killed(tmp_path, 4, FILE, bad=[1], dispatched=False)
    found, _ = ours(root)
    assert found == [b"0", *(b"%d" % number for number in range(2, 4 * PER_FILE))]
    with OfflineStore(root) as view:
        assert offsets(view) == [0, *range(2, 4 * PER_FILE)]


def test_offset_older_than_the_times_is_begun_at(tmp_path):
    root = killed(tmp_path / "a", 4, FILE)
    late = BEGIN_MS + 3_600_000
    (root / "checkpoint").write_bytes(Checkpoint(late, late, late, 0, 0, FILE).encode())
    assert ours(root)[1].read_from == FILE


@pytest.mark.parametrize(("times", "lowered"), [(0, 0), (BEGIN_MS + 3_600_000, 3 * FILE)])
def test_offset_speaks_of_no_unit_that_recovery_makes_again(tmp_path, times, lowered):
    """A power cut may take those before they are flushed: 5.5 would not look for them."""
    root = killed(tmp_path, 4, 3 * FILE + 10)
    page = Checkpoint(times, times, times, 0, 0, 3 * FILE + 10)
    (root / "checkpoint").write_bytes(page.encode())
    options = {"mapped_file_size_commit_log": FILE, "mapped_file_size_consume_queue": 400}
    with open_engine(root, **options) as store:
        assert (
            Checkpoint.decode((root / "checkpoint").read_bytes()).queue_physical_offset == lowered
        )
        store.put(request("T", 0, b"more"))
        end = store.log.wrote_where
    page = Checkpoint.decode((root / "checkpoint").read_bytes())
    assert 3 * FILE < page.queue_physical_offset < end
