"""Both kernels append to the tail of a log in the same way, and leave the same behind."""

import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import messages
from msgspec.structs import replace
from twins import native, needs_native

from rocketlake.format._kernel import pure
from rocketlake.model.message import Message

pytestmark = needs_native

MESSAGE = Message(topic="T", body=b"body", tags="a", keys=["k"])
MAX = 1 << 31
FRAME = (b"T", 1, 0, bytes(8), b"\x0a" * 8, 0, 0, 1, True, False, 60, 500, MAX, True)


class Tail:
    """A tail on memory of its own, with what it told."""

    def __init__(self, kernel, size=1500, wrote=0, now_ns=5_000_999_999):
        self.kernel = kernel
        self.now_ns = now_ns
        self.file = SimpleNamespace(buffer=bytearray(size), wrote=wrote, store_timestamp=0)
        self.slot = SimpleNamespace(next_offset=7)
        self.aheads = 0
        self.lock = threading.Lock()
        self.tail = kernel.LogTail(
            self.lock, lambda: self.now_ns, self.receipt, "ok", self.ahead, lambda *_: None
        )
        self.tail.attach(self.file, 100)
        self.tail.ahead_at = 400
        self.frame = kernel.RecordFrame(*FRAME)

    def receipt(self, *values):
        return values

    def ahead(self):
        self.aheads += 1

    def append(self, message):
        try:
            return self.tail.append(message, self.slot, self.frame)
        except ValueError as error:
            return str(error)

    def state(self):
        file = self.file
        return (
            *(bytes(file.buffer), file.wrote, file.store_timestamp, self.slot.next_offset),
            *(self.aheads, self.tail.lock_since_ms, self.lock.locked()),
        )


def both(do, **options):
    """Do the same with both; return what they answer and leave."""
    tails = [Tail(kernel, **options) for kernel in (pure, native)]
    answers = [do(tail) for tail in tails]
    assert answers[0] == answers[1]
    assert tails[0].state() == tails[1].state()
    return answers[0], tails[0].state()


@given(st.lists(messages, max_size=6), st.integers(0, 1600), st.integers(0, 1 << 60))
def test_messages_are_appended_the_same(batch, wrote, now_ns):
    both(lambda tail: [tail.append(m) for m in batch], wrote=wrote, now_ns=now_ns)


def test_append_moves_everything_by_one_message():
    (answer,), state = both(lambda tail: [tail.append(MESSAGE)])
    size = answer[4]
    assert answer == ("ok", 7, 100, 5000, size, 1, b"\x0a" * 8)
    assert state[1:] == (size, 5000, 8, 0, 0, False)


@pytest.mark.parametrize(
    "message",
    [
        replace(MESSAGE, delay_level=1),
        replace(MESSAGE, wait=False),
        replace(MESSAGE, body=bytes(61)),
    ],
)
def test_what_is_not_plain_takes_the_long_way(message):
    (answer,), state = both(lambda tail: [tail.append(message)])
    assert answer is None
    assert state == (bytes(1500), 0, 0, 7, 0, 0, False)


def test_busy_lock_sends_others_the_long_way():
    def ask(tail):
        tail.tail.busy_ms = 1000
        tail.tail.lock_since_ms = 3999
        refused = tail.append(MESSAGE)
        tail.tail.lock_since_ms = 4000
        return refused, tail.append(MESSAGE)

    (refused, taken), _ = both(ask)
    assert refused is None
    assert taken is not None


def test_detached_tail_takes_nothing():
    def ask(tail):
        tail.append(MESSAGE)
        tail.tail.detach()
        tail.file.buffer.append(0)  # fails while somebody still holds the buffer
        return tail.append(MESSAGE)

    answer, _ = both(ask)
    assert answer is None


def test_pages_ahead_are_asked_for_once_the_mark_is_passed():
    _, state = both(lambda tail: [tail.append(MESSAGE) for _ in range(4)])
    assert state[4] == 1


class OddMapping(dict):
    """A mapping that may have code of its own."""


class OddKeys(list):
    """The same for keys."""


@pytest.mark.parametrize("kernel", [pure, native], ids=["pure", "native"])
def test_messages_whose_reading_runs_foreign_code_are_known(kernel):
    plain = Message(topic="T", body=b"x", keys=("k",), properties={"p": "q"})
    odd = [
        Message(topic="T", body=b"x", properties=OddMapping()),
        Message(topic="T", body=b"x", keys=OddKeys()),
    ]
    assert kernel.are_inert([plain, Message(topic="T", body=memoryview(b"x"))])
    assert kernel.are_inert([])
    for message in odd:
        assert not kernel.are_inert([plain, message])


@pytest.mark.parametrize("kernel", [pure, native], ids=["pure", "native"])
def test_attributes_are_set_in_their_order(kernel):
    class Noting:
        def __init__(self):
            object.__setattr__(self, "seen", [])

        def __setattr__(self, name, value):
            self.seen.append((name, value))

    target = Noting()
    kernel.set_together(((target, "a", 1), (target, "b", 2), (target, "a", 3)))
    assert target.seen == [("a", 1), ("b", 2), ("a", 3)]
    with pytest.raises((TypeError, ValueError)):
        kernel.set_together(((target, "a"),))
