"""Topics that a record cannot hold are refused, whatever the reference's own limit."""

import pytest
from store_bench import batch, open_engine, request

from rocketlake.model.message import Message
from rocketlake.store.api import PutStatus


@pytest.mark.parametrize(
    ("version", "topic", "is_ok"),
    [
        ("4.9", "é" * 63 + "x", True),  # 127 bytes
        ("4.9", "é" * 64, False),
        ("4.6", "é" * 64, False),
        ("5.3", "%RETRY%" + "é" * 60, True),
        ("5.3", "%RETRY%" + "é" * 61, False),  # 68 characters, 129 bytes: version 1
        ("5.3", "%RETRY%" + "x" * 121, True),  # 128 characters: version 2
    ],
)
def test_topic_that_its_record_cannot_hold_is_refused(tmp_path, version, topic, is_ok):
    """RocketMQ puts it, and loses it and what follows: tests/interop/test_reference_limits.py."""
    with open_engine(tmp_path, compat_version=version) as store:
        for receipt in (
            store.put(request(topic)),
            store.put_plain(Message(topic=topic, body=b"x"), 0),
            store.put_async(request(topic)).result(),
            store.put_batch(batch([b"x"], topic)),
        ):
            assert receipt.is_ok is is_ok
            assert is_ok or receipt.status is PutStatus.MESSAGE_ILLEGAL
        assert bool(store.log.wrote_where) is is_ok
