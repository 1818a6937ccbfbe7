"""How a start tells how far it is: to a caller, to the log, and on a terminal."""

import logging

import pytest
from recovery_fakes import SIZE, bench_of

import rocketlake
from rocketlake.model.message import Message
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path, log_file_size=SIZE).records(25).unclean().checkpoint(0, 0, 0)


def test_log_has_the_progress_of_a_long_start(builder, caplog):
    bench = bench_of(builder)
    note = bench.progress.append
    bench.progress = type(
        "Slow", (list,), {"append": lambda _, x: (bench.clock.advance_ms(2000), note(x))}
    )()
    with caplog.at_level(logging.INFO, logger="rocketlake.store.recovery.recovery"):
        bench.recover()
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("recovering ")]
    # Two of three files are read, in four seconds; then they are dispatched.
    assert "total_bytes=3000" in lines[0]
    assert "left_s=2" in lines[0]
    assert "total_bytes=5470" in lines[-1]


def test_short_start_is_not_worth_a_word(builder, caplog):
    with caplog.at_level(logging.INFO, logger="rocketlake.store.recovery.recovery"):
        bench_of(builder).recover()
    assert not [r for r in caplog.records if r.getMessage().startswith("recovering ")]


def test_who_opens_a_store_is_told(tmp_path):
    with rocketlake.open_store(tmp_path) as store:
        store.put(Message(topic="T", body=b"x"))
        assert store.recovery.is_clean
    (tmp_path / "abort").touch()
    told = []
    with rocketlake.open_store(tmp_path, on_progress=lambda *of: told.append(of)) as store:
        assert not store.recovery.is_clean
    done, total = told[-1]
    assert 0 < done <= total


def test_report_has_notes_of_what_was_cut_and_how_to_see_it(builder):
    builder.flip_body(13)
    with rocketlake.open_store(builder.write()) as store:
        assert store.recovery.cut_bytes
        notes = "; ".join(store.recovery.notes)
    assert "good records from" in notes
    assert f"`rocketlake salvage {builder.root}`" in notes
