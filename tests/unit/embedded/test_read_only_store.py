"""open_store(read_only=True): follows a writer, answers as it does, changes no byte."""

import threading

import pytest
from embedded_fakes import WAIT_S, bodies

import rocketlake
from rocketlake import GetStatus, Message
from rocketlake.errors import StoreClosedError, StoreError, StoreNotFoundError
from support.golden import sha256


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with rocketlake.open_store(path) as opened:
        yield opened


def order(**fields) -> Message:
    return Message(**{"topic": "orders", "body": b"x", **fields})


def content(root) -> dict[str, str]:
    return {str(p.relative_to(root)): sha256(p) for p in sorted(root.rglob("*")) if p.is_file()}


def test_read_only_follows_a_writer_and_changes_no_byte(path):
    with rocketlake.open_store(path, mapped_file_size_commit_log=4096) as store:
        store.put(order(body=b"0", keys=["k"]), queue_id=0)
        with rocketlake.open_store(path, read_only=True) as reader:
            for number in range(1, 80):
                result = reader.get("orders", 0, number - 1)
                assert bodies(result.messages) == [str(number - 1)]
                assert (result.next_offset, result.max_offset) == (number, number)
                store.put(order(body=str(number).encode(), keys=["k"]), queue_id=0)
            assert bodies(reader.query("orders", "k", max_messages=3)) == ["77", "78", "79"]
            assert reader.get("orders", 0, 80).status is GetStatus.OFFSET_OVERFLOW_ONE
            store.put(order(topic="new"), queue_id=0)
            assert [t.name for t in reader.topics()] == ["new", "orders"]
            assert reader.max_offset("new", 0) == 1
    before = content(path)
    with rocketlake.open_store(path, read_only=True) as reader:
        assert len(reader.get("orders", 0, 0, 100).messages) == 80
        assert len(reader.query("orders", "k", 100)) == 80
        assert reader.offset_by_time("orders", 0, 0) == 0
    assert content(path) == before


def test_read_only_answers_as_the_store_does(path):
    with rocketlake.open_store(path) as store:
        receipts = [
            store.put(order(body=str(n).encode(), tags="even" if n % 2 == 0 else "odd"), queue_id=1)
            for n in range(100)
        ]
        list(store.consumer("billing", "orders", timeout=0, tags="odd"))
        store.flush()
        with rocketlake.open_store(path, read_only=True) as reader:
            for ask in (
                lambda s: s.get("orders", 1, 0),
                lambda s: s.get("orders", 1, 90),
                lambda s: s.get("orders", 1, 100),
                lambda s: s.get("orders", 1, 200),
                lambda s: s.get("orders", 7, 5),
                lambda s: s.get("nothing", 0, 0),
                lambda s: s.get("orders", 1, 10, 5, tags="even"),
                lambda s: s.get("orders", 1, 10, 5, tags="even || odd"),
                lambda s: s.get("orders", 1, 10, 5, tags="none"),
                lambda s: s.get("orders", 1, 10, 5, sql="TAGS = 'odd'"),
            ):
                ours, theirs = ask(reader), ask(store)
                assert bodies(ours.messages) == bodies(theirs.messages)
                assert (ours.status, ours.next_offset) == (theirs.status, theirs.next_offset)
                assert (ours.min_offset, ours.max_offset) == (theirs.min_offset, theirs.max_offset)
            assert reader.message(receipts[7].msg_id) == store.message(receipts[7].msg_id)
            moment = receipts[50].store_timestamp
            for boundary in ("lower", "upper"):
                found = [s.offset_by_time("orders", 1, moment, boundary) for s in (reader, store)]
                assert found[0] == found[1]
            assert reader.progress("billing") == store.progress("billing")
            assert (reader.groups(), reader.lag("billing")) == (["billing"], 0)
            assert reader.topics() == store.topics()
            columns = reader.columns("orders", 1, 3, 4)
            assert columns.columns["queue_offset"].tolist() == [3, 4, 5, 6]
            assert columns.next_offset == 7


def test_read_only_refuses_to_write(store, path):
    store.put(order())
    reader = rocketlake.open_store(path, read_only=True)
    for use in (
        lambda: reader.put(order()),
        lambda: reader.put_batch([order()]),
        lambda: reader.create_topic("x"),
        lambda: reader.reset_offsets("g", "orders", "first"),
        lambda: reader.consumer("g", "orders"),
    ):
        with pytest.raises(StoreError, match=r"was opened read-only; open_store\("):
            use()
    assert repr(reader) == f"<ReadOnlyStore {str(path)!r} open>"
    reader.close()
    assert not reader.is_open
    with pytest.raises(StoreClosedError):
        reader.get("orders", 0, 0)


def test_read_only_needs_a_store(path):
    with pytest.raises(StoreNotFoundError, match="no store at"):
        rocketlake.open_store(path, read_only=True)
    assert not path.exists()


def test_read_only_in_threads(store, path):
    for number in range(50):
        store.put(order(body=str(number).encode()), queue_id=0)
    failures: list[BaseException] = []

    def read(reader) -> None:
        try:
            for _ in range(20):
                assert len(reader.get("orders", 0, 0, 1000).messages) >= 50
                store.put(order(), queue_id=0)
        except BaseException as error:
            failures.append(error)
            raise

    with rocketlake.open_store(path, read_only=True) as reader:
        threads = [threading.Thread(target=read, args=(reader,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert failures == []
        assert reader.max_offset("orders", 0) == 130
