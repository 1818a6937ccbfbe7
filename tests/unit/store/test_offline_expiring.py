"""Files that a writer in another process expires while they are read: missed, not corrupt."""

from pathlib import Path

import pytest

import rocketlake
from rocketlake.embedded.offline_engine import read_messages
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest, GetStatus, Gone
from rocketlake.store.offline import KeyQuery, OfflineStore
from rocketlake.store.offline.follow import Follower
from support.reading import bodies, walked
from support.store_builder import StoreBuilder

T = QueueKey("T", 0)
GET = GetRequest(topic="T", queue_id=0, offset=0, max_messages=32)


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    """Four log files of 9, 9, 9 and 3 records, two queue files of twenty units."""
    made = StoreBuilder(tmp_path, log_file_size=1000, queue_file_units=20)
    for number in range(30):
        made.record(body=b"%02d" % number, keys=[f"k{number}"])
    made.write()
    return made


@pytest.fixture
def store(builder: StoreBuilder):
    """A view that has listed all files, and holds none of them open."""
    with OfflineStore(builder.root) as found:
        _ = found.queues
        found.close()
        yield found


def test_expired_records_are_no_damage(builder: StoreBuilder, store: OfflineStore):
    builder.log_path(0).unlink()
    builder.log_path(1000).unlink()
    wanted = [b"%02d" % number for number in range(18, 30)]
    assert bodies(store) == wanted
    assert len(walked(store)) == 12
    assert [m.body for m in store.find(KeyQuery(topic=None, key="k20"))] == [b"20"]
    assert store.damage.findings == []
    assert store.log.expired_to == 2000


def test_expired_queue_file_is_no_damage(builder: StoreBuilder, store: OfflineStore):
    builder.log_path(0).unlink()
    builder.log_path(1000).unlink()
    builder.queue_path("T", 0).unlink()
    assert bodies(store) == [b"%02d" % number for number in range(20, 30)]
    assert store.damage.findings == []


def test_read_names_expired_messages_as_gone(builder: StoreBuilder, store: OfflineStore):
    builder.log_path(0).unlink()
    result = read_messages(store, GET, None)
    assert result.status is GetStatus.FOUND
    assert result.corrupt == []
    assert result.gone == [Gone(0, 9)]
    assert [m.queue_offset for m in result.messages] == list(range(9, 30))


def test_read_of_nothing_but_expired_messages(builder: StoreBuilder, store: OfflineStore):
    builder.log_path(0).unlink()
    result = read_messages(store, GetRequest(topic="T", queue_id=0, offset=2, max_messages=3), None)
    assert result.corrupt == []
    assert result.gone[0].first == 2


@pytest.mark.parametrize("base", [1000, 3000])
def test_file_that_is_missing_behind_others_is_damage(
    builder: StoreBuilder, store: OfflineStore, base: int
):
    """Only the oldest files expire."""
    builder.log_path(base).unlink()
    assert len(bodies(store)) == {1000: 21, 3000: 27}[base]
    assert store.damage.count > 0
    assert store.log.expired_to == -1
    assert read_messages(store, GET, None).corrupt


def test_follower_steps_over_what_expires(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch):
    """The writer expires files between the look at the directory and the reads."""
    with OfflineStore(builder.root) as store:
        follower = Follower(store, 0)
        refresh = store.log.refresh

        def expire(file_size: int | None = None) -> None:
            refresh(file_size)
            builder.log_path(0).unlink(missing_ok=True)
            builder.log_path(1000).unlink(missing_ok=True)

        monkeypatch.setattr(store.log, "refresh", expire)
        found = [offset for chunk in follower.poll() for offset in chunk.columns["physical_offset"]]
        assert found == [place.physical_offset for place in builder.placed[18:]]
        assert store.damage.findings == []


def test_follower_that_falls_behind_says_so(builder: StoreBuilder):
    with OfflineStore(builder.root) as store:
        follower = Follower(store, 0)
        builder.log_path(0).unlink()
        list(follower.poll())
        assert store.log.expired_to == 1000
        assert store.damage.findings == []


def test_reader_of_a_store_that_expires_messages(tmp_path: Path):
    """As a program does it: one store writes and deletes, another one reads."""
    sizes = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 200}
    with rocketlake.open_store(tmp_path, **sizes) as writer:
        for number in range(100):
            writer.put(rocketlake.Message(topic="T", body=b"%02d" % number * 50), queue_id=0)
        writer.flush()
        with rocketlake.open_store(tmp_path, read_only=True) as reader:
            reader.get("T", 0, 0, max_messages=1)
            for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
                path.unlink()
            result = reader.get("T", 0, 0, max_messages=32)
            assert result.corrupt == []
