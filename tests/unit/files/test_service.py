"""Background services: when they run, how they end, and that a failure does not end them."""

import subprocess
import sys
import threading

import pytest

from rocketlake.files.background_service import BackgroundService

WAIT_S = 10  # never reached


class Counter(BackgroundService):
    """Counts its runs; a test can wait for one, hold one up or let one fail."""

    def __init__(self, pause_s=None):
        super().__init__("counter")
        self.runs = []
        self.fault = None
        self.gate = None
        self._pause = pause_s
        self._ran = threading.Condition()

    def run_once(self):
        with self._ran:
            self.runs.append(threading.current_thread().name)
            self._ran.notify_all()
        if self.gate is not None:
            assert self.gate.wait(WAIT_S)
        if self.fault is not None:
            raise self.fault

    def pause_s(self):
        return self._pause

    def wait_for(self, count):
        with self._ran:
            assert self._ran.wait_for(lambda: len(self.runs) >= count, WAIT_S)


@pytest.fixture
def make():
    made = []

    def make(*arguments):
        made.append(Counter(*arguments))
        return made[-1]

    yield make
    for service in made:
        service.gate = service.fault = None
        service.close()
        assert not service.is_running


def test_service_that_is_not_started_has_no_thread(make):
    service = make()
    before = threading.active_count()
    service.wakeup()
    assert threading.active_count() == before
    assert not service.is_running
    service.run_once()
    assert service.runs == ["MainThread"]


def test_service_runs_when_it_is_woken(make):
    service = make()
    service.start()
    assert service.is_running
    service.wakeup()
    service.wait_for(1)
    service.wakeup()
    service.wait_for(2)
    assert service.runs == ["counter", "counter"]


def test_service_runs_after_each_pause(make):
    service = make(0.001)
    service.start()
    service.wait_for(3)


def test_wakeup_before_the_pause_leaves_it_out(make):
    service = make()
    service.wakeup()
    service.start()
    service.wait_for(1)


def test_wakeup_during_a_run_leads_to_another(make):
    service = make()
    service.gate = threading.Event()
    service.start()
    service.wakeup()
    service.wait_for(1)
    service.wakeup()
    service.gate.set()
    service.wait_for(2)


def test_close_finishes_the_run_in_progress_and_runs_once_more(make):
    service = make()
    gate = service.gate = threading.Event()
    service.start()
    service.wakeup()
    service.wait_for(1)
    closer = threading.Thread(target=service.close, name="closer")
    closer.start()
    assert service.is_running
    gate.set()
    closer.join(WAIT_S)
    assert service.runs == ["counter", "closer"]
    assert service.is_closing
    assert not service.is_running


def test_close_without_a_thread_runs_once(make):
    service = make()
    service.close()
    service.close()
    assert service.runs == ["MainThread"]


def test_closed_service_does_not_start(make):
    service = make()
    service.close()
    service.start()
    assert not service.is_running


def test_second_start_makes_no_second_thread(make):
    service = make()
    before = threading.active_count()
    service.start()
    service.start()
    assert threading.active_count() == before + 1


def test_thread_is_named_and_keeps_the_program_until_it_is_closed(make):
    service = make()
    service.start()
    assert (service._thread.name, service._thread.daemon) == ("counter", False)


def test_thread_of_a_daemon_keeps_no_program():
    """So that an exit hook can close it: those come after the wait for threads that are none."""
    code = (
        "import atexit\n"
        "from rocketlake.files.background_service import BackgroundService\n"
        "class Service(BackgroundService):\n"
        "    def run_once(self): pass\n"
        "    def run_last(self): print('closed')\n"
        "service = Service('s', is_daemon=True)\n"
        "atexit.register(service.close)\n"
        "service.start()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=WAIT_S
    )
    assert ran.stdout == b"closed\n"


def test_run_that_fails_is_tried_again(make, caplog, monkeypatch):
    monkeypatch.setattr("rocketlake.files.background_service._FAILURE_PAUSE_S", 0.0)
    service = make()
    service.fault = OSError("disk on fire")
    service.start()
    service.wakeup()
    service.wait_for(10)
    service.fault = None
    service.wait_for(len(service.runs) + 1)
    service.close()
    shown = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert shown[:3] == [f"run failed name=counter times_in_a_row={n}" for n in (1, 2, 4)]
    assert len(shown) < len(service.runs)


def test_failure_of_the_last_run_reaches_the_closer(make):
    service = make()
    service.fault = OSError("disk on fire")
    with pytest.raises(OSError, match="disk on fire"):
        service.close()
    service.close()


def test_service_cannot_close_itself(make):
    caught = []

    class Suicide(Counter):
        def run_once(self):
            try:
                self.close()
            except AssertionError as error:
                caught.append(str(error))
            super().run_once()

    service = Suicide()
    service.start()
    service.wakeup()
    service.wait_for(1)
    assert caught == ["counter cannot close itself"]
    Suicide.run_once = Counter.run_once
    service.close()


def test_end_of_each_pause_is_told_before_the_run():
    seen = []

    class Listening(Counter):
        def on_wait_end(self):
            seen.append(len(self.runs))

    service = Listening()
    service.start()
    service.wakeup()
    service.wait_for(1)
    service.close()
    assert seen == [0, 1]
