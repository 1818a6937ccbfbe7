"""Consumers in threads: woken by arrivals, sharing queues, every message handed out."""

import gc
import threading
from collections import Counter

import pytest
from embedded_fakes import WAIT_S, Bench, bodies

from rocketlake.model.queues import QueueKey


@pytest.fixture
def bench():
    return Bench()


class Worker(threading.Thread):
    """Consumes in its own thread; can be stopped between two messages."""

    def __init__(self, consumer, log: list, *, on_message=lambda message: None) -> None:
        super().__init__()
        self.consumer = consumer
        self.log = log
        self.on_message = on_message
        self.start()

    def run(self) -> None:
        for message in self.consumer:
            self.log.append((self.name, message.queue_id, message.queue_offset))
            self.on_message(message)

    def finish(self) -> None:
        self.join(WAIT_S)
        assert not self.is_alive()


def until_awaited(bench: Bench, group: str = "g", count: int = 1) -> None:
    assignment = bench.groups.assignment(group, "orders")
    pause = threading.Event()
    while assignment.waiting_count < count:
        pause.wait(0.001)


def test_iteration_waits_for_arrivals_and_ends_when_closed(bench):
    seen = threading.Event()
    worker = Worker(bench.consumer(timeout_s=None), [], on_message=lambda m: seen.set())
    until_awaited(bench)
    bench.engine.add(1)
    assert seen.wait(WAIT_S)
    until_awaited(bench)
    worker.consumer.close()
    worker.finish()
    assert [entry[1:] for entry in worker.log] == [(0, 0)]
    assert bench.progress_of() == {0: 1}


def test_waiting_costs_no_reads(bench):
    worker = Worker(bench.consumer(timeout_s=None), [])
    until_awaited(bench)
    gets = bench.engine.gets
    bench.engine.add(3, topic="other")  # arrivals of another topic wake nobody
    assert not threading.Event().wait(0.05)
    assert bench.engine.gets == gets
    bench.groups.close()
    worker.finish()


def test_poll_waits_until_its_timeout(bench):
    consumer = bench.consumer()
    assert consumer.poll(timeout=0.001) == []
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(bodies(consumer.poll(timeout=None))))
    thread.start()
    until_awaited(bench)
    bench.engine.add(1)
    thread.join(WAIT_S)
    assert found == ["0:0"]


def test_second_consumer_takes_its_share_between_messages(bench):
    """The first is in the middle of a message; its queues go over when it asks for the next."""
    bench.queue_count = 2
    bench.engine.add(5, queue_id=0)
    bench.engine.add(5, queue_id=1)
    first = bench.consumer()
    assert (next(first).queue_id, next(first).queue_id) == (0, 1)
    second = bench.consumer()
    assert (first.assigned, second.assigned) == ([0, 1], [])
    assert second.poll() == []
    assert next(first).queue_id == 0
    assert first.assigned == [0]
    assert bodies(second.poll()) == ["1:1", "1:2", "1:3", "1:4"]  # 1:0 was committed before
    assert bodies(list(first)) == ["0:1", "0:2", "0:3", "0:4"]  # a loop left early: once more


def test_polled_messages_hold_their_queue_until_they_are_committed(bench):
    bench.queue_count = 2
    bench.engine.add(2, queue_id=0)
    bench.engine.add(2, queue_id=1)
    first = bench.consumer()
    assert len(first.poll(2)) == 2
    second = bench.consumer()
    assert second.poll() == []
    assert bodies(first.poll()) == ["0:1"]  # queue 1 is leaving: nothing more of it
    assert second.poll() == []
    first.commit()
    assert bodies(second.poll()) == ["1:1"]


def test_consumer_that_waits_gives_its_queues_away(bench):
    bench.queue_count = 2
    log: list = []
    first = Worker(bench.consumer(timeout_s=None), log)
    until_awaited(bench)
    second = Worker(bench.consumer(timeout_s=None), log)
    until_awaited(bench, count=2)
    bench.engine.add(1, queue_id=0)
    bench.engine.add(1, queue_id=1)
    pause = threading.Event()
    while len(log) < 2:
        pause.wait(0.001)
    bench.groups.close()
    first.finish()
    second.finish()
    assert sorted(log) == sorted([(first.name, 0, 0), (second.name, 1, 0)])


def test_consumer_nobody_holds_any_more_leaves_its_queues_to_the_others(bench):
    bench.queue_count = 2
    bench.engine.add(2, queue_id=0)
    bench.engine.add(2, queue_id=1)
    for message in bench.consumer():
        assert message.body == b"0:0"
        break
    second = bench.consumer()
    assert second.assigned == [0, 1]
    assert sorted(bodies(list(second))) == ["0:0", "0:1", "1:0", "1:1"]


def test_consumer_in_a_cycle_wakes_those_that_wait_when_it_is_collected(bench):
    cycle: list = [bench.consumer()]
    cycle.append(cycle)
    log: list = []
    worker = Worker(bench.consumer(timeout_s=None), log)
    until_awaited(bench)
    bench.engine.add(1)
    assert not log
    cycle = []
    gc.collect()
    pause = threading.Event()
    while not log:
        pause.wait(0.001)
    bench.groups.close()
    worker.finish()


def test_members_that_come_and_go_lose_nothing_and_keep_the_order(bench):
    """Consumers join and leave all the time while messages arrive; each queue in order."""
    queues, total = 6, 3000
    bench.queue_count = queues
    log: list = []
    done = threading.Event()

    def note(message) -> None:
        if len({entry[1:] for entry in log}) >= total:
            done.set()

    workers = [Worker(bench.consumer(timeout_s=None), log, on_message=note) for _ in range(3)]
    for number in range(total):
        bench.engine.add(1, queue_id=number % queues)
        if number % 150 == 149:
            workers.pop(0).consumer.close()
            workers.append(Worker(bench.consumer(timeout_s=None), log, on_message=note))
    assert done.wait(WAIT_S)
    for worker in workers:
        worker.consumer.close()
        worker.finish()
    seen = Counter(entry[1:] for entry in log)
    assert sorted(seen) == [(q, n) for q in range(queues) for n in range(total // queues)]
    repeated = sum(count - 1 for count in seen.values())
    assert repeated <= 20  # at most the message in hand of each consumer that was closed
    for name, queue in {entry[:2] for entry in log}:
        offsets = [offset for worker, q, offset in log if (worker, q) == (name, queue)]
        assert offsets == sorted(set(offsets))


def test_two_consumers_never_have_a_queue_at_once(bench):
    bench.queue_count = 4
    busy = [threading.Lock() for _ in range(4)]
    clashes: list[int] = []

    def work(message) -> None:
        lock = busy[message.queue_id]
        if not lock.acquire(blocking=False):
            clashes.append(message.queue_id)
            return
        threading.Event().wait(0.0005)
        lock.release()

    for queue in range(4):
        bench.engine.add(100, queue_id=queue)
    log: list = []
    workers = [Worker(bench.consumer(timeout_s=0.2), log, on_message=work) for _ in range(3)]
    for worker in workers:
        worker.finish()
    assert clashes == []
    assert len(log) == 400
    assert bench.progress_of() == dict.fromkeys(range(4), 100)
    assert {bench.engine.queue_bounds(QueueKey("orders", q))[1] for q in range(4)} == {100}
