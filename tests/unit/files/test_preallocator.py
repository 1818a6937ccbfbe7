"""Files made ahead of need: the next and the next but one, limits, errors, the end."""

import signal
import threading
from contextlib import suppress

import pytest
from file_fakes import SIZE, FaultyOps, Loan

from rocketlake.errors import DiskFullError, FlushFailedError, StoreClosedError
from rocketlake.files.file_traits import LOG_FILES, FilePlace
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.preallocator import Preallocator, WarmUp
from support.manual_clock import ManualClock

WAIT_S = 10  # never reached


class StuckOps(FaultyOps):
    """Files whose creation waits for a gate, and says that it waits."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()

    def create(self, path, size, *, is_sparse=False):
        self.reached.set()
        assert self.gate.wait(WAIT_S)
        return super().create(path, size, is_sparse=is_sparse)


@pytest.fixture
def ops():
    return StuckOps()


@pytest.fixture
def preallocators():
    made = []
    yield made
    for preallocator in made:
        preallocator.close()
        assert not preallocator.is_running


@pytest.fixture
def make(ops, preallocators):
    def make(*, wait_s=WAIT_S, lend=None, retry_s=0.001, **settings):
        maker = MappedFileMaker(ops, ManualClock(), LOG_FILES, lend)
        preallocators.append(QueuedPreallocator(maker, wait_s=wait_s, retry_s=retry_s, **settings))
        return preallocators[-1]

    return make


@pytest.fixture
def place(tmp_path):
    def place(number, directory="log"):
        return FilePlace(tmp_path / directory / f"{number * SIZE:020d}", number * SIZE, SIZE)

    return place


def names_in(path):
    return sorted(int(child.name) // SIZE for child in path.iterdir())


class QueuedPreallocator(Preallocator):
    """A preallocator whose `obtain` returns the file that its queue was given."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.given = {}

    def obtain(self, wanted, following=None, adopt=None):
        if adopt is not None:
            return super().obtain(wanted, following, adopt)
        if wanted.base_offset not in self.given:
            super().obtain(wanted, following, self._take)
            if not self.is_running:
                self._hand_over()
        elif following is not None:
            with self._change:
                self._submit(following)
        return self.given.pop(wanted.base_offset, None)

    def _take(self, file):
        self.given[file.base_offset] = file


class Stock:
    def __init__(self, available):
        self.available = available


# --- ahead of need -----------------------------------------------------------


def test_file_and_the_one_behind_it_are_made(make, place, tmp_path):
    preallocator = make()
    preallocator.start()
    file = preallocator.obtain(place(0), place(1))
    assert (file.base_offset, file.wrote) == (0, 0)
    preallocator.obtain(place(1))
    assert names_in(tmp_path / "log") == [0, 1]


def test_file_made_ahead_is_there_at_once(make, place, ops):
    preallocator = make(wait_s=0)
    assert preallocator.obtain(place(0), place(1)) is None, "nobody has made it yet"
    preallocator.run_once()
    made = ops.count("create")
    assert made == 2
    for number in (0, 1):
        assert preallocator.obtain(place(number)).base_offset == number * SIZE
    assert ops.count("create") == made


def test_larger_files_come_first_and_then_earlier_ones(make, place, tmp_path, ops):
    preallocator = make(wait_s=0)
    large = FilePlace(tmp_path / "log" / "large", 9 * SIZE, 2 * SIZE)
    preallocator.obtain(place(2), place(1))
    preallocator.obtain(large)
    preallocator.run_once()
    created = [call.split()[1] for call in ops.calls if call.startswith("create")]
    assert created == ["large", place(1).path.name, place(2).path.name]


def test_file_made_ahead_is_used_wherever_it_lies(make, place, tmp_path):
    """The rule for directories may change meanwhile; there must not be two files for one offset."""
    preallocator = make(wait_s=0)
    preallocator.obtain(place(0, "a"), place(1, "b"))
    preallocator.run_once()
    assert preallocator.obtain(place(1, "c")).path == place(1, "b").path
    assert not (tmp_path / "c").exists()


def test_file_not_made_yet_goes_where_the_last_call_wants_it(make, place):
    preallocator = make(wait_s=0)
    preallocator.obtain(place(0, "a"), place(1, "b"))
    preallocator.obtain(place(1, "c"))
    preallocator.run_once()
    assert preallocator.obtain(place(1, "c")).path == place(1, "c").path


# --- limits -----------------------------------------------------------


def test_caller_does_not_wait_for_ever(make, place, ops, caplog):
    preallocator = make(wait_s=0.01)
    preallocator.start()
    ops.gate.clear()
    assert preallocator.obtain(place(0)) is None
    assert preallocator.refusal == f"{place(0).path.name} could not be made within 0.01 s"
    assert f"no new file path={place(0).path} reason={preallocator.refusal}" in caplog.text
    ops.gate.set()


def test_file_that_came_too_late_is_there_for_the_next_call(make, place, ops):
    preallocator = make(wait_s=0)
    assert preallocator.obtain(place(0)) is None
    preallocator.run_once()
    assert preallocator.obtain(place(0)).base_offset == 0
    assert ops.count("create") == 1


def test_without_write_buffers_the_caller_is_refused_at_once(make, place):
    preallocator = make(stock=Stock(0))
    assert preallocator.obtain(place(0), place(1)) is None
    assert preallocator.refusal == f"no write buffer is left for {place(0).path.name}"


def test_no_write_buffer_is_logged_sparsely_and_counted(make, place, caplog):
    preallocator = make(stock=Stock(0))
    for _ in range(100):
        assert preallocator.obtain(place(0), place(1)) is None
    lines = [record.getMessage() for record in caplog.records]
    path = place(0).path
    counts = [1, 2, 4, 8, 16, 32, 64]
    assert lines == [f"no write buffer left for a file path={path} count={n}" for n in counts]


def test_files_being_made_count_against_the_write_buffers(make, place, ops):
    preallocator = make(wait_s=0, stock=Stock(1))
    preallocator.obtain(place(0), place(1))
    preallocator.run_once()
    assert ops.count("create") == 1
    assert preallocator.obtain(place(0)).base_offset == 0


# --- errors -----------------------------------------------------------


def test_error_is_given_to_the_caller_and_stays_until_a_file_can_be_made(make, place, ops):
    preallocator = make()
    ops.faults["create"] = DiskFullError("disk", SIZE, 0)
    preallocator.start()
    for _ in range(3):
        with pytest.raises(DiskFullError, match=f"{SIZE} bytes wanted, 0 free"):
            preallocator.obtain(place(0), place(1))
    assert isinstance(preallocator.error, DiskFullError)
    ops.faults.clear()
    file = None
    while file is None:
        try:
            file = preallocator.obtain(place(0), place(1))
        except DiskFullError:
            ops.reached.clear()
            assert ops.reached.wait(WAIT_S), "the thread goes on trying without being asked"
    assert file.base_offset == 0
    assert preallocator.error is None


def test_error_of_the_file_ahead_does_not_concern_the_one_that_is_there(make, place, ops):
    preallocator = make(wait_s=0)
    preallocator.obtain(place(0))
    preallocator.run_once()
    ops.faults["create"] = DiskFullError("disk", SIZE, 0)
    assert preallocator.obtain(place(0), place(1)).base_offset == 0
    preallocator.run_once()
    with pytest.raises(DiskFullError):
        preallocator.obtain(place(1))


def test_error_is_logged_once_and_so_is_its_end(make, place, ops, caplog):
    caplog.set_level("INFO")
    preallocator = make(wait_s=0)
    ops.faults["create"] = DiskFullError("disk", SIZE, 0)
    assert preallocator.obtain(place(0)) is None
    for _ in range(5):
        preallocator.run_once()
    ops.faults.clear()
    preallocator.run_once()
    assert caplog.text.count("file not made path=") == 1
    assert caplog.text.count("files can be made again path=") == 1


def test_thread_tries_again_by_itself_only_after_an_error(make, place, ops):
    preallocator = make(wait_s=0)
    assert preallocator.pause_s() is None
    ops.faults["create"] = DiskFullError("disk", SIZE, 0)
    preallocator.obtain(place(0))
    preallocator.run_once()
    assert preallocator.pause_s() == 0.001


def test_put_that_meets_an_error_has_the_thread_try_again_at_once(make, place, ops):
    preallocator = make(retry_s=10 * WAIT_S)
    ops.faults["create"] = DiskFullError("disk", SIZE, 0)
    preallocator.start()
    with pytest.raises(DiskFullError):
        preallocator.obtain(place(0))
    ops.faults.clear()
    made = threading.Event()
    with suppress(DiskFullError):  # it does not wait for what may fail again
        Preallocator.obtain(preallocator, place(0), None, lambda _: made.set())
    assert made.wait(WAIT_S)
    assert preallocator.error is None


# --- warming up -----------------------------------------------------------


def test_files_are_warmed_up_before_they_are_handed_out(make, place, monkeypatch):
    warmed = []
    monkeypatch.setattr(
        "rocketlake.files.mapped_file.MappedFile.warm",
        lambda file, _, *, sync_every_pages: warmed.append((file.base_offset, sync_every_pages)),
    )
    preallocator = make(wait_s=0, warm_up=WarmUp(4096))
    preallocator.obtain(place(0), place(1))
    preallocator.run_once()
    assert warmed == [(0, 4096), (SIZE, 4096)]


def test_warm_up_ends_when_somebody_waits_for_the_file(make, place, monkeypatch):
    """A put needs the file more than it needs warm pages."""
    is_warming = threading.Event()
    ended = []

    def warm(_file, stop, *, sync_every_pages):
        is_warming.set()
        for _ in range(10_000):
            if stop():
                ended.append(sync_every_pages)
                return
            threading.Event().wait(0.001)

    monkeypatch.setattr("rocketlake.files.mapped_file.MappedFile.warm", warm)
    preallocator = make(warm_up=WarmUp())
    with preallocator._change:
        preallocator._submit(place(0))
    preallocator.start()
    preallocator.wakeup()
    assert is_warming.wait(WAIT_S)
    assert preallocator.obtain(place(0)).base_offset == 0
    assert ended == [0]


def test_warm_up_ends_when_the_store_closes(make, place, monkeypatch, tmp_path):
    is_warming = threading.Event()

    def warm(_file, stop, *, sync_every_pages):
        is_warming.set()
        while not stop():
            threading.Event().wait(0.001)
        return sync_every_pages

    monkeypatch.setattr("rocketlake.files.mapped_file.MappedFile.warm", warm)
    preallocator = make(wait_s=0, warm_up=WarmUp())
    with preallocator._change:
        preallocator._submit(place(0))
    preallocator.start()
    preallocator.wakeup()
    assert is_warming.wait(WAIT_S)
    preallocator.close()
    assert names_in(tmp_path / "log") == []


def test_file_that_cannot_be_warmed_up_is_no_file(make, place, ops, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise FlushFailedError("disk", "flush failed")

    monkeypatch.setattr("rocketlake.files.mapped_file.MappedFile.warm", fail)
    preallocator = make(wait_s=0, warm_up=WarmUp(1))
    preallocator.obtain(place(0))
    preallocator.run_once()
    with pytest.raises(FlushFailedError):
        preallocator.obtain(place(0))
    assert names_in(tmp_path / "log") == []
    assert ops.open_writers == 0


# --- the end -----------------------------------------------------------


def test_closing_removes_files_that_nobody_came_for(make, place, tmp_path, ops):
    preallocator = make()
    preallocator.start()
    file = preallocator.obtain(place(0), place(1))
    preallocator.close()
    assert names_in(tmp_path / "log") == [0]
    assert file.is_available
    file.shutdown(0)
    assert ops.open_writers == 0


def test_closing_returns_the_buffers_of_unused_files(make, place):
    loans = [Loan(), Loan()]
    given = list(loans)
    preallocator = make(wait_s=0, lend=given.pop)
    preallocator.obtain(place(0), place(1))
    preallocator.run_once()
    preallocator.obtain(place(0)).shutdown(0)
    preallocator.close()
    assert [loan.returns for loan in loans] == [1, 1]


def test_closed_preallocator_makes_nothing(make, place):
    preallocator = make()
    preallocator.close()
    with pytest.raises(StoreClosedError, match="the store is closed"):
        preallocator.obtain(place(0))


def test_closing_ends_the_wait_of_a_caller(make, place, ops, tmp_path):
    preallocator = make()
    ops.gate.clear()
    preallocator.start()
    outcome = []

    def wait():
        try:
            outcome.append(preallocator.obtain(place(0)))
        except StoreClosedError as error:
            outcome.append(error)

    caller = threading.Thread(target=wait)
    caller.start()
    assert ops.reached.wait(WAIT_S)
    closer = threading.Thread(target=preallocator.close)
    closer.start()
    caller.join(WAIT_S)
    assert isinstance(outcome[0], StoreClosedError)
    ops.gate.set()
    closer.join(WAIT_S)
    assert names_in(tmp_path / "log") == []


def test_file_whose_request_was_dropped_meanwhile_is_removed(make, place, ops, tmp_path):
    preallocator = make(wait_s=0)
    ops.gate.clear()
    preallocator.obtain(place(0))
    maker = threading.Thread(target=preallocator.run_once)
    maker.start()
    assert ops.reached.wait(WAIT_S)
    preallocator.discard()
    ops.gate.set()
    maker.join(WAIT_S)
    assert names_in(tmp_path / "log") == []


# --- with a queue -----------------------------------------------------------


def test_queue_rolls_into_files_made_ahead(make, ops, tmp_path):
    preallocator = make()
    preallocator.start()
    clock = ManualClock()
    maker = MappedFileMaker(ops, clock)
    queue = MappedFileQueue(
        ops, clock, maker, tmp_path / "log", file_size=SIZE, preallocator=preallocator
    )
    for _ in range(4):
        file = queue.last_file(0)
        file.append(bytes(SIZE))
    assert [file.base_offset for file in queue.files] == [n * SIZE for n in range(4)]
    preallocator.close()
    assert names_in(tmp_path / "log") == [0, 1, 2, 3]
    queue.close()


def test_queue_without_a_file_in_time_stays_as_it_is(make, ops, tmp_path):
    preallocator = make(wait_s=0)
    clock = ManualClock()
    queue = MappedFileQueue(
        *(ops, clock, MappedFileMaker(ops, clock), tmp_path / "log"),
        file_size=SIZE,
        preallocator=preallocator,
    )
    assert queue.last_file(0) is None
    assert queue.files == ()
    preallocator.run_once()
    assert queue.last_file(0).base_offset == 0
    queue.close()


def test_file_of_a_caller_that_was_interrupted_reaches_its_queue(make, ops, tmp_path):
    """Ctrl-C while a put waits for the next file: the next put finds it, and makes no other."""
    preallocator = make()
    preallocator.start()
    queue = MappedFileQueue(
        *(ops, ManualClock(), MappedFileMaker(ops, ManualClock()), tmp_path / "log"),
        file_size=SIZE,
        preallocator=preallocator,
    )
    ops.gate.clear()

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            queue.last_file(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    ops.gate.set()
    assert queue.last_file(0).base_offset == 0
    assert [file.base_offset for file in queue.files] == [0]
    queue.close()
