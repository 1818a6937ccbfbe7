"""A program whose main thread is interrupted every few milliseconds, by real signals.

    python storm_run.py puts  DIR MODE SEED SECONDS     puts in a tight loop, then closes
    python storm_run.py close DIR MODE SEED TIMES       SIGINT at a random moment of close()

Prints a line of JSON with figures. A promise that is broken ends it with an exception.
"""

import faulthandler
import itertools
import json
import os
import random
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from time import monotonic

import rocketlake
from rocketlake import Message
from rocketlake.upkeep.verify.verifier import Verifier

SMALL = {
    "mapped_file_size_commit_log": 16384,
    "mapped_file_size_consume_queue": 20 * 50,
    "max_hash_slot_num": 16,
    "max_index_num": 64,
    "default_topic_queue_nums": 2,
}
MODES = {
    "async": {},
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "write buffers": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
}
LIBRARY = str(Path(rocketlake.__file__).parent)
QUEUES = 2
TOPICS_MAX = 40
STUCK_S = 60
LEAVE_S = 3
FAR_LEVEL = 18


class StormError(BaseException):
    """What the handler of the signal raises."""


class Storm:
    """Raises in the main thread every one to three milliseconds, where the library is at work."""

    def __init__(self, chance):
        self._chance = chance
        self._is_on = False
        self.raised = 0
        signal.signal(signal.SIGALRM, self._handle)

    def start(self):
        self._is_on = True
        self._arm()

    def stop(self):
        self._is_on = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _arm(self):
        signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(0.001, 0.003))

    def _handle(self, _, frame):
        if self._is_on:
            self._arm()
            if is_in_library(frame):
                self.raised += 1
                raise StormError


def is_in_library(frame):
    """Whether a call of the library is under way: nothing else is made to stand interrupts."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(LIBRARY):
            return True
        frame = frame.f_back
    return False


class Run:
    """A store, what it acknowledged, and one consumer."""

    def __init__(self, path, mode, chance):
        self.path, self._chance = path, chance
        self._options = {**SMALL, **MODES[mode]}
        self._numbers = itertools.count()
        self._topics = ["T"]
        self.acknowledged = []
        self.delayed = []
        self.consumed = []
        self.errors = []
        self.store = self._open()
        self.store.create_topic("T", QUEUES)
        self._thread = threading.Thread(target=self._consume, name="consumer of a test")
        self._thread.start()

    def _open(self):
        return rocketlake.open_store(self.path, **self._options)

    def _consume(self):
        try:
            for message in self.store.consumer("g", "T"):
                self.consumed.append((message.queue_id, message.queue_offset))
        except BaseException as error:
            self.errors.append(error)
            raise

    def message(self, topic, **fields):
        size = 3000 if self._chance.random() < 0.02 else self._chance.randrange(20, 200)
        body = b"%08d" % next(self._numbers)
        return Message(topic=topic, body=body.ljust(size, b"."), **fields)

    def step(self):
        """Make one call; what is acknowledged is noted by one call more."""
        choice, store = self._chance.random(), self.store
        queue = self._chance.randrange(QUEUES)
        if choice < 0.55:
            message = self.message("T", keys=["k"] if choice < 0.1 else [])
            receipt = store.put(message, queue)
            self.acknowledged.append(("T", queue, receipt.queue_offset, message.body))
        elif choice < 0.7:
            messages = [self.message("T") for _ in range(3)]
            first = store.put_batch(messages, queue).queue_offset
            self.acknowledged.extend(
                ("T", queue, first + n, message.body) for n, message in enumerate(messages)
            )
        elif choice < 0.85:
            message = self.message("T")
            receipt = store.put_async(message, queue).result(10)
            self.acknowledged.append(("T", queue, receipt.queue_offset, message.body))
        elif choice < 0.95:
            message = self.message("T", delay_level=FAR_LEVEL)
            self.delayed.append((store.put(message, queue).physical_offset, message.body))
        else:
            self._put_to_a_topic()

    def _put_to_a_topic(self):
        if len(self._topics) < TOPICS_MAX and self._chance.random() < 0.5:
            self._topics.append(f"topic-{len(self._topics)}")
        message = self.message(self._chance.choice(self._topics))
        receipt = self.store.put(message, 0)
        self.acknowledged.append((message.topic, 0, receipt.queue_offset, message.body))

    # --- what must hold afterwards --------------------------------------------------------------

    def check(self):
        """Look at the store once it is closed."""
        self._thread.join(STUCK_S)
        assert not self._thread.is_alive(), "the consumer was not ended"
        assert not self.errors, self.errors
        check_closed(self.path)
        findings = []
        Verifier(self.path).run(findings.append)
        assert not findings, findings[:3]
        self.store = self._open()
        assert self.store.recovery.is_clean
        with self.store:
            self._check_messages()
            self._check_consumer()

    def _check_messages(self):
        places = [place[:3] for place in self.acknowledged]
        assert len(places) == len(set(places)), "a queue offset was given twice"
        found = {}
        for topic in self.store.topics():
            for queue in range(topic.read_queue_count):
                found |= self._read(topic.name, queue)
        lost = [place for place in self.acknowledged if found.get(place[:3]) != place[3]]
        assert not lost, f"{len(lost)} acknowledged messages are not at their place: {lost[:3]}"
        gone = [
            place
            for place, body in self.delayed
            if (message := self.store.message_at(place)) is None or message.body != body
        ]
        assert not gone, f"{len(gone)} delayed messages are gone"

    def _read(self, topic, queue):
        found, offset = {}, self.store.min_offset(topic, queue)
        assert offset == 0
        end = self.store.max_offset(topic, queue)
        while offset < end:
            result = self.store.get(topic, queue, offset, 500)
            assert result.messages, (topic, queue, offset, end)
            assert not result.corrupt
            for message in result.messages:
                assert message.queue_offset == offset, f"a gap at {topic} {queue} {offset}"
                found[topic, queue, offset] = message.body
                offset += 1
        return found

    def _check_consumer(self):
        """Nothing is skipped, by the consumer of the run or by the next one."""
        with self.store.consumer("g", "T", timeout=0) as consumer:
            rest = [(message.queue_id, message.queue_offset) for message in consumer]
        for queue in range(QUEUES):
            before = [offset for found, offset in self.consumed if found == queue]
            assert before == list(range(len(before))), f"queue {queue} was not consumed in order"
            end = self.store.max_offset("T", queue)
            seen = {*before, *(offset for found, offset in rest if found == queue)}
            assert seen == set(range(end)), f"the group skipped messages of queue {queue}"


def check_closed(path):
    """No thread of a store is left but for such that are about to end, and it was closed."""
    names = ("rocketlake", "delay levels", "timer", "table-keeper", "index-flush")
    deadline = monotonic() + LEAVE_S
    while left := [t.name for t in threading.enumerate() if t.name.startswith(names)]:
        assert monotonic() < deadline, f"threads are left: {left}"
        threading.Event().wait(0.001)
    assert not (path / "abort").exists(), "the store was not closed cleanly"


def storm_of_puts(path, mode, chance, seconds):
    """Put under the storm, close under the storm, and look."""
    run, storm = Run(path, mode, chance), Storm(chance)
    end = monotonic() + seconds
    storm.start()
    while monotonic() < end:
        with suppress(StormError):
            run.step()
    closes = 1
    while True:
        try:
            run.store.close()
            break
        except StormError:
            closes += 1
    storm.stop()
    # Why: to verify a large store takes longer than any step above may take.
    faulthandler.dump_traceback_later(STUCK_S + 10 * seconds, exit=True)
    run.check()
    files = len(list((path / "commitlog").iterdir()))
    return {
        "acknowledged": len(run.acknowledged) + len(run.delayed),
        "interrupts": storm.raised,
        "interrupts of close": closes - 1,
        "log files": files,
        "consumed": len(run.consumed),
    }


def interrupts_of_close(path, mode, chance, times):
    """Send SIGINT at a random moment of close(), again and again."""
    hits, longest_s = 0, 0.05

    def handle(_, frame):
        if is_in_library(frame):
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    for number in range(times):
        store = rocketlake.open_store(path, **{**SMALL, **MODES[mode]})
        for _ in range(5):
            store.put(Message(topic="T", body=b"%d" % number))
        wait_s, is_late = chance.uniform(0, longest_s), threading.Event()

        def send(wait_s=wait_s, is_late=is_late):
            if not is_late.wait(wait_s):
                os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=send)
        sender.start()
        began = monotonic()
        try:
            store.close()
        except KeyboardInterrupt:
            hits += 1
        longest_s = max(min(monotonic() - began, 0.2), 0.005)
        is_late.set()
        sender.join()
        check_closed(path)
    with rocketlake.open_store(path, **{**SMALL, **MODES[mode]}) as store:
        count = sum(store.max_offset("T", queue) for queue in range(QUEUES))
        assert count == 5 * times, (count, times)
    return {"closes": times, "interrupted": hits}


def main():
    what, path, mode, seed, amount = sys.argv[1:]
    faulthandler.dump_traceback_later(float(amount) + STUCK_S, exit=True)
    chance = random.Random(int(seed))
    if what == "puts":
        found = storm_of_puts(Path(path), mode, chance, float(amount))
    else:
        found = interrupts_of_close(Path(path), mode, chance, int(amount))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # noqa: BLE001 - told, and the process ends
        # Why not raised: the threads of a store that is still open would keep the process.
        traceback.print_exc()
        os._exit(1)
