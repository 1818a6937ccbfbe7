"""A call that an exception ends at any instruction leaves a store that loses nothing and goes on.

Every seventh instruction, or fewer of long calls; `ROCKETLAKE_INTERRUPTS=all` takes every single
one, which lasts half an hour. The cases are in `interrupted_run.py`.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("interrupted_run.py")
MODES = ["async", "sync", "write buffers"]
pytestmark = pytest.mark.parametrize("mode", MODES)


def interrupt(case, mode, path, *kind):
    """Run a case in a process of its own; return how often the call was interrupted."""
    command = [sys.executable, str(SCRIPT), case, mode, str(path), *kind]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    print(shlex.join(command), ended.stdout)  # noqa: T201 - shown with a failure, or with -s
    assert ended.returncode == 0, ended.stderr[-4000:]
    return int(ended.stdout)


@pytest.mark.parametrize("kind", ["plain", "keyed", "large", "unwaited"])
def test_put(tmp_path, mode, kind):
    assert interrupt("put", mode, tmp_path, kind) > 5


@pytest.mark.parametrize("kind", ["delay level", "deliver at"])
def test_put_of_a_delayed_message(tmp_path, mode, kind):
    assert interrupt("delayed put", mode, tmp_path, kind) > 5


def test_put_batch(tmp_path, mode):
    assert interrupt("put_batch", mode, tmp_path) > 5


def test_put_async(tmp_path, mode):
    assert interrupt("put_async", mode, tmp_path) > 5


def test_roll(tmp_path, mode):
    """Every put needs a new file."""
    assert interrupt("roll", mode, tmp_path) > 5


def test_first_put_of_a_topic(tmp_path, mode):
    """The topic can be written afterwards, whatever became of its first message."""
    assert interrupt("first put of a topic", mode, tmp_path) > 5


@pytest.mark.parametrize("read", ["get", "query", "offset_by_time", "max_offset", "flush"])
def test_read_behind_a_put(tmp_path, mode, read):
    assert interrupt("read behind a put", mode, tmp_path, read) > 5


def test_consumer_loop(tmp_path, mode):
    """Every message is handed out, in the order of its queue, and none is skipped."""
    assert interrupt("consumer loop", mode, tmp_path) > 5


def test_one_consumer_that_is_interrupted_again_and_again(tmp_path, mode):
    """A consumer that goes on after an exception hands out what the ended call took."""
    assert interrupt("one consumer", mode, tmp_path) > 5


def test_poll_and_commit(tmp_path, mode):
    """What a poll took that did not return comes again, and is not committed."""
    assert interrupt("poll and commit", mode, tmp_path) > 5


def test_topics_made_changed_and_deleted(tmp_path, mode):
    assert interrupt("topics", mode, tmp_path) > 5


def test_close(tmp_path, mode):
    """A close that is interrupted has closed the store; another one does no harm."""
    assert interrupt("close", mode, tmp_path) > 5


def test_open(tmp_path, mode):
    """An open that is interrupted leaves a store that can be opened."""
    assert interrupt("open", mode, tmp_path) > 5
