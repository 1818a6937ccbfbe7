"""Following a log as it grows, rolls and is written in halves."""

import pytest

from rocketlake.store.offline import OfflineStore
from rocketlake.store.offline.follow import Follower
from support.reading import findings
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path, log_file_size=1000).unclean()


def polled(follower):
    """Bodies of everything new."""
    return [m.stored_body for chunk in follower.poll() for m in chunk.columns.messages()]


def follow(builder):
    store = OfflineStore(builder.write())
    return store, Follower(store, store.max_offset)


def test_nothing_new_gives_nothing(builder):
    store, follower = follow(builder.records(3))
    with store:
        assert polled(follower) == []
        assert polled(follower) == []
        assert follower.position == builder.end


def test_new_records_come_once(builder):
    store, follower = follow(builder.records(3))
    with store:
        builder.record(body=b"a").record(body=b"b").write()
        assert polled(follower) == [b"a", b"b"]
        assert polled(follower) == []
        builder.record(body=b"c").write()
        assert polled(follower) == [b"c"]
        assert follower.position == builder.end
        assert store.damage.count == 0


def test_log_that_rolls_is_followed(builder):
    store, follower = follow(builder.records(3))
    with store:
        found = []
        for number in range(40):
            builder.record(body=b"%d" % number).write()
            found += polled(follower)
        assert found == [b"%d" % number for number in range(40)]
        assert len(store.log.files) > 3
        assert store.damage.count == 0


def test_spare_files_are_nothing_new(builder):
    store, follower = follow(builder.records(3))
    with store:
        builder.spare_file().write()
        assert polled(follower) == []
        builder.roll().record(body=b"next").write()
        assert polled(follower) == [b"next"]
        assert store.damage.count == 0


def test_roll_without_a_next_file_waits(builder):
    store, follower = follow(builder.records(3))
    with store:
        builder.roll().write()
        assert polled(follower) == []
        builder.record(body=b"next").write()
        assert polled(follower) == [b"next"]


@pytest.mark.parametrize("keep", [1, 4, 8, 40, 60, 89, 93])
def test_half_written_record_comes_when_it_is_whole(builder, keep):
    store, follower = follow(builder.records(3))
    with store:
        builder.torn_record(keep, body=b"whole").write()
        assert polled(follower) == []
        assert polled(follower) == []
        assert store.damage.count == 0
        builder.record(body=b"whole").record(body=b"next").write()
        assert polled(follower) == [b"whole", b"next"]
        assert store.damage.count == 0


def test_body_that_comes_behind_its_head_is_waited_for(builder):
    """Head and lengths are there, the body is still zero: its checksum does not hold."""
    store, follower = follow(builder.records(3))
    with store:
        builder.record(body=b"a body").flip_body(3).write()
        assert polled(follower) == []
        assert store.damage.count == 0
        builder.flip_body(3).write()
        assert polled(follower) == [b"a body"]


def test_damage_is_stepped_over_when_the_log_goes_on_in_a_later_file(builder):
    store, follower = follow(builder.records(3))
    with store:
        builder.record(body=b"bad").record(body=b"good").flip_body(3).roll()
        builder.record(body=b"later").write()
        assert polled(follower) == [b"good", b"later"]
        assert [place for _, place, _ in findings(store)] == [builder.placed[3].physical_offset]
        assert polled(follower) == []
        assert store.damage.count == 1


def test_torn_record_is_stepped_over_when_the_log_goes_on_in_a_later_file(builder):
    """A broker that died and came back cuts it off, or fills the file; either way it goes on."""
    store, follower = follow(builder.records(3))
    with store:
        torn_at = builder.end
        builder.torn_record(60).write()
        assert polled(follower) == []
        builder.end = 1000
        builder.record(body=b"later").write()
        assert polled(follower) == [b"later"]
        assert [place for _, place, _ in findings(store)] == [torn_at]


def test_expired_files_move_the_position(builder):
    store, follower = follow(builder.records(3))
    with store:
        builder.roll().record(body=b"second").roll().record(body=b"third").expire(1).write()
        assert polled(follower) == [b"second", b"third"]


def test_log_made_anew_is_followed_from_its_begin(builder, tmp_path):
    store, follower = follow(builder.records(25))
    with store:
        assert follower.position > 2000
        for path in (builder.root / "commitlog").iterdir():
            path.unlink()
        store.close()
        StoreBuilder(tmp_path, log_file_size=1000).record(body=b"anew").write()
        assert polled(follower) == [b"anew"]


def test_log_that_is_cut_back_is_followed_from_there(builder):
    """A restarted broker truncates a torn end and writes other records in its place."""
    store, follower = follow(builder.records(3))
    with store:
        builder.torn_record(60, body=b"never finished").write()
        assert polled(follower) == []
        builder.overwrite(builder.end, bytes(120)).record(body=b"instead").write()
        assert polled(follower) == [b"instead"]


def test_follower_of_an_empty_log(builder):
    store, follower = follow(builder)
    with store:
        assert polled(follower) == []
        builder.record(body=b"first").write()
        assert polled(follower) == [b"first"]


def test_follower_may_start_in_the_past(builder):
    store, _ = follow(builder.records(25))
    with store:
        follower = Follower(store, builder.placed[20].physical_offset)
        assert polled(follower) == [b"%d" % number for number in range(20, 25)]
