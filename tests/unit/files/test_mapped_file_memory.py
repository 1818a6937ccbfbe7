"""Memory of a mapped file: warming up, keeping it, advice."""

import pytest
from file_fakes import PAGE, SIZE, FakeMap

from rocketlake.files.file_traits import QUEUE_FILES, FileTraits
from rocketlake.files.ops import Advice

STEP = 8 << 20


@pytest.fixture
def warmable(make):
    """A file of two and a half steps on memory that counts."""

    def make_warmable(*, locks=True):
        file = make(FileTraits(is_sparse=True, is_durable=False), size=2 * STEP + STEP // 2)
        file._map.close()
        file._map = FakeMap(file.size, locks)
        return file, file._map.calls

    return make_warmable


def test_warm_up_goes_through_the_file_in_steps(warmable):
    file, calls = warmable()
    assert file.warm(lambda: False)
    steps = [(0, STEP), (STEP, STEP), (2 * STEP, STEP // 2)]
    assert calls == [(name, *step) for step in steps for name in ("populate", "lock")] + [
        ("advise", Advice.WILL_NEED)
    ]


def test_warm_up_ends_when_it_is_told(warmable):
    file, calls = warmable()
    answers = [False, True]
    assert not file.warm(lambda: answers.pop(0))
    assert calls == [("populate", 0, STEP), ("lock", 0, STEP)]


def test_warm_up_does_not_insist_on_locking(warmable):
    file, calls = warmable(locks=False)
    assert file.warm(lambda: False)
    assert [call[0] for call in calls] == ["populate", "lock", "populate", "populate", "advise"]
    assert not file.munlock()


def test_locked_file_is_unlocked_once(warmable):
    file, calls = warmable()
    assert not file.munlock()
    file.warm(lambda: False)
    assert file.munlock()
    assert not file.munlock()
    assert calls[-1] == ("unlock",)


def test_warm_up_flushes_on_the_way(warmable, ops):
    file, _ = warmable()
    assert file.warm(lambda: False, sync_every_pages=STEP // PAGE)
    assert ops.count("sync") == 2
    file.warm(lambda: False, sync_every_pages=2 * STEP // PAGE)
    assert ops.count("sync") == 3


def test_warm_up_of_real_memory_leaves_zeros(make, path):
    file = make()
    assert file.warm(lambda: False)
    assert path.read_bytes() == bytes(SIZE)
    file.munlock()


def test_file_in_use_is_not_warmed_up(make):
    file = make()
    file.append(b"a")
    with pytest.raises(AssertionError, match="in use"):
        file.warm(lambda: False)


def test_file_that_goes_away_is_neither_warmed_nor_advised(make):
    file = make()
    file.destroy(0)
    assert not file.warm(lambda: False)
    assert not file.advise(Advice.RANDOM)
    assert not file.munlock()


def test_advice_is_passed_on(make):
    file = make()
    file._map.close()
    file._map = FakeMap(file.size, locks=True)
    assert file.advise(Advice.RANDOM)
    assert file._map.calls == [("advise", Advice.RANDOM)]


def test_pages_are_brought_in_ahead_of_the_appender(make):
    file = make()
    file._map.close()
    file._map = FakeMap(file.size, locks=True)
    file.wrote = 100
    assert file.populate_ahead(50)
    assert file.populate_ahead(10 * SIZE)
    assert file._map.calls == [("ahead", 100, 50), ("ahead", 100, SIZE - 100)]
    file.destroy(0)
    assert not file.populate_ahead(50)


def test_pages_of_real_memory_are_brought_in_ahead(make, path):
    file = make()
    file.append(b"abc")
    assert file.populate_ahead(SIZE)
    assert path.read_bytes() == b"abc" + bytes(SIZE - 3)


def test_sparse_file_is_not_read_ahead_until_it_is_full(make):
    file = make(QUEUE_FILES)
    file._map.close()
    file._map = FakeMap(file.size, locks=True)
    file.buffer = file._map.buffer
    file.append(b"unit")
    assert file._map.calls == [("advise", Advice.RANDOM)]
    file.flush(0)
    file.append(bytes(SIZE - 4))
    assert file._map.calls == [("advise", Advice.RANDOM)]
    file.flush(0)
    assert file._map.calls == [("advise", Advice.RANDOM), ("advise", Advice.NORMAL)]
