"""A program whose calls are ended by an exception, one instruction later each time.

    python interrupted_run.py CASE MODE DIR [KIND]     one of CASES, in one of MODES

Each case makes a call again and again, each time with an exception some instructions later, until
the call comes to its end. After every one of them the store takes a message; in the end everything
acknowledged is at its place, queue offsets have no gaps, and the store closes, reopens and
verifies. `ROCKETLAKE_INTERRUPTS=all` takes every single instruction. Prints how many times the call
was interrupted; a promise that is broken ends the program with an exception.

Why a program of its own: an exception raised by a trace function leaves frames, and with them
stores, that the interpreter never lets go.
"""

import faulthandler
import itertools
import os
import sys
import threading
import traceback
from pathlib import Path

from injector import Injector

import rocketlake
from rocketlake import Message
from rocketlake.clock import SystemClock
from rocketlake.upkeep.verify.verifier import Verifier

SMALL = {
    "mapped_file_size_commit_log": 16384,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": 16,
    "max_index_num": 64,
    "default_topic_queue_nums": 2,
}
MODES = {
    "async": {},
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "write buffers": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
}
TAKES_ALL = os.environ.get("ROCKETLAKE_INTERRUPTS") == "all"
STUCK_S = 60
EVERY = 1 if TAKES_ALL else 7


class Bench:
    """A store, what it acknowledged, and calls that are interrupted."""

    def __init__(self, path, **options):
        self.path = path
        self._options = {**SMALL, **options}
        self._numbers = itertools.count()
        self.acknowledged = {}
        self.interrupts = 0
        self.store = self.open()

    def open(self):
        self.store = rocketlake.open_store(self.path, **self._options)
        return self.store

    def message(self, topic="T", size=40, **fields):
        body = f"{next(self._numbers):08d}".encode()
        return Message(topic=topic, body=body.ljust(size, b"."), **fields)

    def note(self, topic, receipt, *bodies):
        assert receipt.is_ok, receipt
        for number, body in enumerate(bodies):
            place = (topic, self._queue_of(receipt, topic, body), receipt.queue_offset + number)
            assert place not in self.acknowledged, f"{place} was given twice"
            self.acknowledged[place] = body

    def _queue_of(self, receipt, topic, body):
        found = self.store.message_at(receipt.physical_offset)
        if found is None:
            self.store.max_offset(topic, 0)  # has write buffers committed
            found = self.store.message_at(receipt.physical_offset)
        assert found.topic == topic
        return found.queue_id

    def put(self, message):
        self.note(message.topic, self.store.put(message), message.body)

    def interrupt(self, make_call, *, step=1, between=None, most=100_000):
        """Make a call until it comes to its end, with an exception one instruction later each."""
        injector = Injector()
        step = 1 if TAKES_ALL else step * EVERY
        for at in itertools.count(0, step):
            call = make_call()
            if not injector.run(call, at):
                self.interrupts += at // step
                return at
            try:
                (between or self._go_on)()
            except BaseException as error:
                raise AssertionError(f"interrupted at {at}: {injector.place}") from error
            assert at < most, "the call never comes to its end"
        return 0

    def _go_on(self):
        self.put(self.message())

    def check(self):
        """Compare what is there with what was acknowledged."""
        topics = sorted({topic for topic, _, _ in self.acknowledged})
        found = {}
        for topic in topics:
            for queue in range(self.store.topic(topic).read_queue_count):
                end = self.store.max_offset(topic, queue)
                offset = self.store.min_offset(topic, queue)
                while offset < end:
                    result = self.store.get(topic, queue, offset, 500)
                    assert result.messages, (topic, queue, offset, end)
                    assert not result.corrupt
                    for message in result.messages:
                        assert message.queue_offset == offset, "a gap in queue offsets"
                        found[topic, queue, offset] = message.body
                        offset += 1
        lost = {place for place, body in self.acknowledged.items() if found.get(place) != body}
        assert not lost, sorted(lost)[:5]

    def finish(self):
        """Close, reopen and verify the store."""
        self.check()
        self.store.close()
        assert not (self.path / "abort").exists()
        assert not store_threads()
        findings = []
        Verifier(self.path).run(findings.append)
        assert not findings
        with self.open():
            self.check()


def store_threads():
    """The threads of open stores; those that are ending have their time."""
    names = ("rocketlake", "delay levels", "timer", "table-keeper")
    deadline_s = SystemClock().monotonic_s() + 5
    while SystemClock().monotonic_s() < deadline_s:
        found = [t for t in threading.enumerate() if t.name.startswith(names) and t.is_alive()]
        if not found:
            break
    return found


def place_of(message):
    return message.queue_id, message.queue_offset


def later(seconds=3600):
    return SystemClock().now_ms() + 1000 * seconds


PUTS = {
    "plain": {},
    "keyed": {"keys": ["k1", "k2"], "tags": "a", "properties": {"p": "q"}},
    "large": {"size": 9000},
    "unwaited": {"wait": False},
}


def put(bench, kind):
    def make_call():
        message = bench.message(**PUTS[kind])
        return lambda: bench.note("T", bench.store.put(message), message.body)

    bench.put(bench.message())
    assert bench.interrupt(make_call) > 50
    bench.finish()


def delayed_put(bench, kind):
    fields = {"delay_level": 18} if kind == "delay level" else {"deliver_at": later()}
    bench.put(bench.message())
    bench.interrupt(lambda: lambda: bench.store.put(bench.message(**fields)), step=3)
    bench.finish()


def put_batch(bench):
    def make_call():
        messages = [bench.message() for _ in range(3)]
        return lambda: bench.note(
            "T", bench.store.put_batch(messages, queue_id=1), *(m.body for m in messages)
        )

    bench.put(bench.message())
    bench.interrupt(make_call)
    bench.finish()


def put_async(bench):
    def make_call():
        message = bench.message()
        return lambda: bench.note("T", bench.store.put_async(message).result(10), message.body)

    bench.put(bench.message())
    bench.interrupt(make_call)
    bench.finish()


def roll(bench):
    """Every put needs a new file."""

    def make_call():
        message = bench.message(size=9000)
        return lambda: bench.note("T", bench.store.put(message), message.body)

    bench.put(bench.message())
    bench.interrupt(make_call, between=lambda: bench.put(bench.message(size=9000)))
    bench.finish()


def first_put_of_a_topic(bench):
    """The topic can be written afterwards, whatever became of its first message."""
    topics = (f"new-{number}" for number in itertools.count())
    topic = ""

    def make_call():
        nonlocal topic
        topic = next(topics)
        message = bench.message(topic)
        return lambda: bench.note(message.topic, bench.store.put(message), message.body)

    bench.interrupt(make_call, between=lambda: bench.put(bench.message(topic)), step=2)
    bench.finish()


def read_behind_a_put(bench, read):
    calls = {
        "get": lambda: bench.store.get("T", 0, 0),
        "query": lambda: bench.store.query("T", "k"),
        "offset_by_time": lambda: bench.store.offset_by_time("T", 0, later(-3600)),
        "max_offset": lambda: bench.store.max_offset("T", 0),
        "flush": bench.store.flush,
    }

    def make_call():
        bench.put(bench.message(keys=["k"]))
        return calls[read]

    bench.interrupt(make_call, step=11 if read == "query" else 2)
    bench.finish()


def consumer_loop(bench):
    """Every message is handed out, in the order of its queue, and none is skipped."""
    for _ in range(40):
        bench.put(bench.message())
    seen = []

    def make_call():
        bench.put(bench.message())

        def call():
            with bench.store.consumer("g", "T", timeout=0, batch=3) as consumer:
                seen.extend(map(place_of, consumer))

        return call

    bench.interrupt(make_call, step=7, between=bench._go_on)
    bench.check()
    for queue in range(2):
        offsets = [offset for found, offset in seen if found == queue]
        end = bench.store.max_offset("T", queue)
        assert set(offsets) == set(range(end)), "a message was skipped"
    bench.finish()


def one_consumer(bench):
    """A consumer that goes on after an exception hands out what the ended call took."""
    consumer = bench.store.consumer("g", "T", timeout=0, batch=3)
    seen = []

    def make_call():
        bench.put(bench.message())

        def call():
            seen.extend(map(place_of, consumer))

        return call

    bench.interrupt(make_call, step=5)
    seen.extend(map(place_of, consumer))
    for queue in range(2):
        offsets = [offset for found, offset in seen if found == queue]
        assert set(offsets) == set(range(bench.store.max_offset("T", queue)))
        assert offsets == sorted(offsets), "out of order"
    consumer.close()
    bench.finish()


def poll_and_commit(bench):
    """What a poll took that did not return comes again, and is not committed."""
    consumer = bench.store.consumer("g", "T", auto_commit=False)
    seen = set()

    def make_call():
        bench.put(bench.message())

        def call():
            seen.update((m.queue_id, m.queue_offset) for m in consumer.poll())
            consumer.commit()

        return call

    bench.interrupt(make_call, step=3)
    while found := consumer.poll():
        seen.update((m.queue_id, m.queue_offset) for m in found)
    missing = {
        (queue, offset)
        for queue in range(2)
        for offset in range(bench.store.max_offset("T", queue))
        if (queue, offset) not in seen
    }
    # A message may have left the poll and not have come to `seen`.
    assert len(missing) <= 3, missing
    consumer.close()
    bench.finish()


def topics(bench):
    numbers = itertools.count()
    bench.put(bench.message())

    def make_call():
        name = f"topic-{next(numbers)}"

        def call():
            bench.store.create_topic(name, 2)
            bench.store.update_topic(name, 3)
            bench.store.delete_topic(name)

        return call

    bench.interrupt(make_call, step=11)
    bench.finish()


def close(bench):
    """A close that is interrupted has closed the store; another one does no harm."""
    bench.put(bench.message())

    def between():
        bench.store.close()
        assert not store_threads()
        bench.open()
        bench.put(bench.message())

    bench.interrupt(lambda: bench.store.close, step=3, between=between)
    bench.open()
    bench.finish()


def open_again(bench):
    """An open that is interrupted leaves a store that can be opened."""
    bench.put(bench.message())
    bench.store.close()

    def between():
        if bench.store.is_open:  # some C code took the exception for its own, and went on
            bench.store.close()
        assert not store_threads()
        with bench.open():
            bench.put(bench.message())

    # Most instructions read the options; the last ones hand the work to the store's thread.
    injector = Injector()
    injector.run(bench.open, 1 << 60)
    bench.store.close()
    last = injector.count - 700
    for at in [*range(0, last, 5_000), *range(last, injector.count, EVERY)]:
        injector.run(bench.open, at)
        bench.interrupts += 1
        between()
    bench.open()
    bench.finish()


CASES = {
    "put": put,
    "delayed put": delayed_put,
    "put_batch": put_batch,
    "put_async": put_async,
    "roll": roll,
    "first put of a topic": first_put_of_a_topic,
    "read behind a put": read_behind_a_put,
    "consumer loop": consumer_loop,
    "one consumer": one_consumer,
    "poll and commit": poll_and_commit,
    "topics": topics,
    "close": close,
    "open": open_again,
}


def main():
    case, mode, path, *kind = sys.argv[1:]
    stuck_s = STUCK_S * (60 if TAKES_ALL else 1)
    faulthandler.dump_traceback_later(stuck_s, exit=True)
    bench = Bench(Path(path), **MODES[mode])
    CASES[case](bench, *kind)
    sys.stdout.write(f"{bench.interrupts}\n")


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # noqa: BLE001 - told, and the process ends
        # Why not raised: the threads of a store that is still open would keep the process.
        traceback.print_exc()
        os._exit(1)
