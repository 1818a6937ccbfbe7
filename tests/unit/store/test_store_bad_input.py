"""A message that is refused leaves the store as it was, byte for byte."""

import pytest

from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.store.api import AppendRequest, PutStatus
from support.engine import BORN, BORN_HOST, batch_request, open_engine, request
from support.golden import sha256

SIZES = {"mapped_file_size_commit_log": 64 << 10, "max_message_size": 10_000}

ILLEGAL = PutStatus.MESSAGE_ILLEGAL
PROPERTIES = PutStatus.PROPERTIES_SIZE_EXCEEDED

# Answers of RocketMQ 5.3.3, 4.9.7 and 4.6.0 to the same puts; 5.3.3 with the broker's hooks.
VERSIONS = ("5.3", "4.9", "4.6")
REFUSED = {
    "body too large": (request(body=bytes(10_001)), (ILLEGAL, ILLEGAL, ILLEGAL)),
    "properties too long": (
        request(properties={"p": "v" * 40_000}),
        (PROPERTIES, ILLEGAL, PROPERTIES),
    ),
    "properties too long in bytes only": (
        request(properties={"p": "ü" * 20_000}),
        (PROPERTIES, PROPERTIES, ILLEGAL),
    ),
    "topic too long": (request(topic="t" * 128), (ILLEGAL, ILLEGAL, ILLEGAL)),
    "retry topic too long": (request(topic="%RETRY%" + "t" * 250), (ILLEGAL, ILLEGAL, ILLEGAL)),
}

# What RocketMQ has no status for.
IMPOSSIBLE = {
    "separator in a value": request(properties={"p": "a\x01b"}),
    "end of property in a name": request(properties={"p\x02": "a"}),
    "property without a name": request(properties={"": "a"}),
    "flag beyond 32 bits": request(flag=1 << 31),
    "queue beyond 32 bits": request(queue_id=1 << 31),
    "lonely surrogate": request(properties={"p": "\ud800"}),
    "port beyond 32 bits": AppendRequest(
        message=Message(topic="T", body=b"x"),
        queue_id=0,
        born_timestamp=BORN,
        born_host=Endpoint(BORN_HOST.address, 1 << 31),
    ),
}

# 5.3.3 raises what 4.x answers with MESSAGE_ILLEGAL. Each message counts 22 bytes more than it has.
BATCHES = {
    "one too large": [b"a", bytes(10_001), b"b"],
    "together too large": [bytes(4_000)] * 3,
    "with their headers too large": [bytes(4_900), bytes(4_900), bytes(170)],
}


@pytest.fixture
def version():
    return "5.3"


@pytest.fixture
def store(tmp_path, version):
    with open_engine(tmp_path / "store", compat_version=version, **SIZES) as opened:
        for number in range(20):
            opened.put(request(queue_id=number % 2, body=bytes(number), keys=[f"k{number}"]))
        settle(opened)
        yield opened


def settle(store) -> None:
    store.catch_up()
    store.flush()


def content(root) -> dict[str, str]:
    """The sum of every file; the checkpoint says when, not what."""
    return {
        str(path.relative_to(root)): sha256(path)
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "checkpoint"
    }


def assert_goes_on(store, end: int) -> None:
    """The next good message takes the place that the refused one did not."""
    receipt = store.put(request(queue_id=0, body=b"good"))
    assert (receipt.status, receipt.queue_offset) == (PutStatus.PUT_OK, 10)
    assert receipt.physical_offset == end


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", REFUSED)
def test_refused_message_changes_nothing(store, tmp_path, version, name):
    put, answers = REFUSED[name]
    before, end = content(tmp_path), store.log.max_offset
    receipt = store.put(put)
    assert not receipt.is_ok
    assert receipt.status is answers[VERSIONS.index(version)]
    settle(store)
    assert content(tmp_path) == before
    assert_goes_on(store, end)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_message_changes_nothing(store, tmp_path, name):
    before, end = content(tmp_path), store.log.max_offset
    with pytest.raises((ValueError, TypeError)):
        store.put(IMPOSSIBLE[name])
    settle(store)
    assert content(tmp_path) == before
    assert_goes_on(store, end)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", BATCHES)
def test_refused_batch_changes_nothing(store, tmp_path, version, name):
    del version
    before, end = content(tmp_path), store.log.max_offset
    messages = [Message(topic="T", body=body) for body in BATCHES[name]]
    assert store.put_batch(batch_request(messages)).status is ILLEGAL
    settle(store)
    assert content(tmp_path) == before
    assert_goes_on(store, end)


def test_bad_message_in_a_batch_changes_nothing(store, tmp_path):
    before, end = content(tmp_path), store.log.max_offset
    messages = [Message(topic="T", body=b"x", properties={"p": value}) for value in ("a", "\x01")]
    with pytest.raises(ValueError, match="separator"):
        store.put_batch(batch_request(messages))
    settle(store)
    assert content(tmp_path) == before
    assert_goes_on(store, end)


def test_record_larger_than_a_file_changes_nothing(tmp_path):
    with open_engine(tmp_path / "store", mapped_file_size_commit_log=4096) as store:
        store.put(request(body=b"one"))
        settle(store)
        before = content(tmp_path)
        assert not store.put(request(body=bytes(5000))).is_ok
        settle(store)
        assert content(tmp_path) == before
        assert store.put(request(body=b"two")).queue_offset == 1


def test_nothing_is_put_into_a_closed_store(tmp_path):
    store = open_engine(tmp_path / "store", **SIZES)
    store.put(request(body=b"one"))
    store.close()
    before = content(tmp_path)
    assert store.put(request(body=b"two")).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert content(tmp_path) == before
