"""`rocketlake tail`: a real process that follows a store the test appends to."""

import json
import os
import signal
import subprocess
import threading
from queue import Empty, Queue

import pytest

from support import command
from support.store_builder import StoreBuilder

TIMEOUT_S = 30


class Tail:
    """The process, its lines as they come, and its end."""

    def __init__(self, root, *arguments):
        self.process = subprocess.Popen(
            [*command.COMMAND, "tail", str(root), "--interval", "0.01", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
        self._lines = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line)

    def line(self):
        """The next line; waits for it."""
        try:
            return self._lines.get(timeout=TIMEOUT_S).rstrip("\n")
        except Empty:
            raise AssertionError("no line came") from None

    def body(self):
        return json.loads(self.line())["body"]

    def finish(self):
        """Exit code and stderr; waits for the end."""
        code = self.process.wait(TIMEOUT_S)
        return code, self.process.stderr.read()


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path / "store", log_file_size=2000).unclean()


@pytest.fixture
def following():
    """Starts processes, and ends those that are left."""
    started = []

    def start(root, *arguments):
        started.append(Tail(root, *arguments))
        return started[-1]

    yield start
    for tail in started:
        if tail.process.poll() is None:
            tail.process.kill()
        tail.process.wait(TIMEOUT_S)
        tail.process.stdout.close()
        tail.process.stderr.close()


@pytest.fixture
def follow(builder, following):
    """Follows what the builder has made so far."""

    def start(*arguments):
        return following(builder.write(), "--json", "--body", "text", *arguments)

    return start


def test_last_messages_come_first_then_new_ones(builder, follow):
    builder.records(5)
    tail = follow("-n", 2, "--limit", 3)
    assert [tail.body(), tail.body()] == ["3", "4"]
    for number in range(3):
        builder.record(body=b"new %d" % number).write()
        assert tail.body() == f"new {number}"
    assert tail.finish() == (0, "")


def test_log_that_rolls_is_followed(builder, follow):
    builder.records(1)
    tail = follow("--limit", 40)
    assert tail.body() == "0"
    for number in range(40):
        builder.record(body=b"%d" % number)
    builder.write()
    assert [tail.body() for _ in range(40)] == [str(number) for number in range(40)]
    assert tail.finish() == (0, "")


def test_half_written_record_is_waited_for(builder, follow):
    builder.records(1)
    tail = follow("--limit", 2)
    assert tail.body() == "0"
    builder.torn_record(60, body=b"whole").write()
    builder.record(body=b"whole").write()
    assert tail.body() == "whole"
    builder.record(body=b"next").write()
    assert tail.body() == "next"
    assert tail.finish() == (0, "")


def test_topic_queue_tag_and_sql(builder, follow):
    builder.record("T", 0, b"old", tags="A", properties={"n": "9"})
    arguments = ("--topic", "T*", "--queue", 0, "--tag", "A", "--sql", "n > 5", "--limit", 1)
    tail = follow(*arguments)
    assert tail.body() == "old"
    builder.record("U", 0, b"topic", tags="A", properties={"n": "9"})
    builder.record("T", 1, b"queue", tags="A", properties={"n": "9"})
    builder.record("T", 0, b"tag", tags="B", properties={"n": "9"})
    builder.record("T", 0, b"sql", tags="A", properties={"n": "1"})
    builder.record("T", 0, b"yes", tags="A", properties={"n": "9"}).write()
    assert tail.body() == "yes"
    assert tail.finish() == (0, "")


def test_records_of_no_queue_are_left_out(builder, follow):
    builder.records(1)
    tail = follow("--limit", 1)
    assert tail.body() == "0"
    builder.record(body=b"half", sys_flag=0x4).record(body=b"back", sys_flag=0xC)
    builder.record(body=b"plain").write()
    assert tail.body() == "plain"
    assert tail.finish() == (0, "")


def test_topic_that_is_not_there_yet(builder, follow):
    builder.records(1)
    tail = follow("--topic", "New", "--limit", 1)
    assert tail.process.stderr.readline().startswith("note: no topic 'New' in this store")
    builder.record("New", body=b"here").write()
    assert tail.body() == "here"
    assert tail.finish()[0] == 0


def test_new_messages_of_an_empty_store(tmp_path, following):
    builder = StoreBuilder(tmp_path, log_file_size=2000)
    tail = following(builder.write(), "--limit", 1, "--body", "none")
    # Only then does it wait for what is new.
    assert "no process has this store open" in tail.process.stderr.readline()
    builder.record(body=b"first").write()
    assert tail.line().split()[:3] == ["T", "0", "0"]
    assert tail.finish() == (0, "")


def test_several_new_messages_at_once_end_at_the_limit(builder, follow):
    builder.records(1)
    tail = follow("-n", 1, "--limit", 2)
    assert tail.body() == "0"
    for number in range(5):
        builder.record(body=b"%d" % number)
    builder.write()
    assert [tail.body(), tail.body()] == ["0", "1"]
    assert tail.finish() == (0, "")
    assert tail._lines.empty()


def test_interrupt_ends_it_quietly(builder, follow):
    builder.records(3)
    tail = follow()
    assert tail.body() == "0"
    assert [tail.body(), tail.body()] == ["1", "2"]
    tail.process.send_signal(signal.SIGINT)
    code, err = tail.finish()
    assert "Traceback" not in err
    assert code in (0, 130)


def test_clean_store_is_noted_and_rows_have_a_header(tmp_path, following):
    builder = StoreBuilder(tmp_path, log_file_size=2000).records(2)
    tail = following(builder.write(), "--limit", 1)
    assert "no process has this store open" in tail.process.stderr.readline()
    assert "TOPIC" in tail.line()
    assert [tail.line().split()[2] for _ in range(2)] == ["0", "1"]
    builder.record(body=b"new").write()
    assert tail.line().split()[-1] == "new"
    assert tail.finish() == (0, "")


def test_log_in_other_directories(tmp_path, following):
    builder = StoreBuilder(tmp_path, log_file_size=400, log_dirs=("x/a", "x/b")).records(5)
    root = builder.unclean().write()
    options = '{"mappedFileSizeCommitLog": 400}'
    place = f"{root}/x/a,{root}/x/b"
    arguments = ("--commitlog", place, "--options", options, "--limit", 3)
    tail = following(root, "--json", "--body", "text", *arguments)
    assert [tail.body() for _ in range(5)] == ["0", "1", "2", "3", "4"]
    for number in range(3):
        builder.record(body=b"new %d" % number).write()
    assert [tail.body() for _ in range(3)] == ["new 0", "new 1", "new 2"]
    assert tail.finish() == (0, "")


@pytest.mark.parametrize("count", [1, 3, 100])
def test_last_so_many_of_all_queues_in_the_order_of_the_log(builder, follow, count):
    for number in range(12):
        builder.record("TUV"[number % 3], number % 2, b"%d" % number)
    tail = follow("-n", count, "--limit", 1)
    wanted = [str(number) for number in range(12)][-count:]
    assert [tail.body() for _ in wanted] == wanted
    builder.record(body=b"new").write()
    assert tail.body() == "new"
    assert tail.finish() == (0, "")
