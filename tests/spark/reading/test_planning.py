"""Plans: every unit in exactly one partition, and cut where a plan unit by unit would cut."""

import pickle
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rocketlake.files.ops import PosixFileOps
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.spark.reading import run_split, units
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import PlacesPart, QueuePart
from rocketlake.spark.reading.planning import plan_spans
from rocketlake.spark.reading.queue_spans import wanted_spans
from rocketlake.spark.reading.run_split import split, weigh
from rocketlake.spark.reading.run_table import RunTable, read_units
from rocketlake.spark.reading.units import UnitFiles, UnitRun
from rocketlake.store.disk.log import Readers
from rocketlake.store.offline import OfflineStore
from support.golden import GoldenStores, case_names

PER_FILE = 40
SIZE = 20 * PER_FILE


def naive_split(files, runs, cuts):
    """The plan unit by unit: each goes to the piece of the highest offset before it."""
    pieces = [[] for _ in range(len(cuts) + 1)]
    for run in runs:
        highest = -(1 << 62)
        for index in range(run.from_index, run.to_index):
            unit = files.read(run, index, 1)
            if len(unit):
                highest = max(highest, int(unit["physical_offset"][0]))
            number = int(np.searchsorted(cuts, highest, side="right"))
            pieces[number].append((run.topic, run.queue_id, index))
    return [piece for piece in pieces if piece]


def units_of(table):
    """The units of a piece, one by one."""
    return [
        (run.topic, run.queue_id, index)
        for run in table.runs()
        for index in range(run.from_index, run.to_index)
    ]


@pytest.fixture
def made(tmp_path: Path):
    """Makes random queues of a store, and returns their files and runs."""
    readers = Readers(PosixFileOps())

    def make(chance: random.Random, *, is_damaged: bool = False):
        root = tmp_path / str(chance.random())
        runs = []
        for number in range(chance.randint(1, 12)):
            topic, count = f"T{number % 3}", chance.choice((1, 3, 30, 95, 200))
            places = sorted(chance.sample(range(1, 100_000), count))
            if is_damaged and chance.random() < 0.5:
                places[chance.randrange(count)] = chance.choice((0, 1 << 40))
            data = b"".join(QueueUnit(at, chance.randint(1, 500), 0).encode() for at in places)
            folder = root / "consumequeue" / topic / str(number)
            folder.mkdir(parents=True)
            for base in range(0, len(data), SIZE):
                (folder / f"{base:020}").write_bytes(data[base : base + SIZE].ljust(SIZE, b"\0"))
            begin = chance.randrange(count)
            runs.append(UnitRun(topic, number, False, SIZE, begin, chance.randint(begin, count)))
        runs[0] = UnitRun("T0", 0, False, SIZE, 0, 1)
        return UnitFiles(root, readers), [run for run in runs if len(run)]

    yield make
    readers.close()


@pytest.mark.parametrize("block", [3276, 20], ids=["small runs", "large runs"])
def test_split_is_that_of_each_unit(made, monkeypatch, block):
    monkeypatch.setattr(run_split, "BLOCK", block)
    monkeypatch.setattr(run_split, "_GROUP", 100)
    chance = random.Random(14)
    for _ in range(60):
        files, runs = made(chance)
        places = read_units(files, RunTable.of(runs)).places["physical_offset"].tolist()
        cuts = sorted({*chance.sample(range(100_000), chance.randint(1, 9)), chance.choice(places)})
        found = split(files, RunTable.of(runs), cuts)
        assert [units_of(table) for table in found] == naive_split(files, runs, cuts)


@pytest.mark.parametrize("search", [2048, 0], ids=["read", "searched"])
def test_split_of_damaged_units_has_each_once(made, monkeypatch, search):
    monkeypatch.setattr(run_split, "_SEARCH_UNITS", search)
    monkeypatch.setattr(run_split, "BLOCK", 64)
    monkeypatch.setattr(units, "BLOCK", 8)
    chance = random.Random(15)
    for number in range(60):
        files, runs = made(chance, is_damaged=True)
        cuts = sorted(chance.sample(range(100_000), chance.randint(1, 9)))
        if number % 3 == 0:  # a file is gone
            run = max(runs, key=len)
            files.path(run, run.from_index)[0].unlink()
        found = [
            unit for table in split(files, RunTable.of(runs), cuts) for unit in units_of(table)
        ]
        assert sorted(found) == sorted(units_of(RunTable.of(runs)))
        assert max(Counter(found).values()) == 1


def test_weights_are_the_bytes_of_the_records(made):
    chance = random.Random(16)
    for _ in range(30):
        files, runs = made(chance)
        table = RunTable.of(runs)
        weights = weigh(files, table)
        found = read_units(files, table).places
        assert weights.total == pytest.approx(int(found["size"].sum()), rel=0.6)
        cuts = weights.cuts(5)
        assert cuts == sorted(set(cuts))
        assert weigh(files, RunTable.of([])).cuts(3) == []


def test_units_of_many_runs_are_those_of_each(made):
    chance = random.Random(17)
    for number in range(30):
        files, runs = made(chance)
        if number % 3 == 0:
            files.path(runs[0], runs[0].from_index)[0].unlink()
        found = read_units(files, RunTable.of(runs))
        expected = [files.all(run) for run in runs]
        assert found.places.tolist() == np.concatenate(expected).tolist()
        counts = [len(each) for each in expected]
        assert found.rows.tolist() == np.repeat(np.arange(len(runs)), counts).tolist()
        assert bool(found.lost) == (number % 3 == 0)


def test_packed_table_is_the_same_again():
    chance = random.Random(18)
    runs = [
        UnitRun(
            f"T{n % 7}", n - 3, n % 5 == 0, 46 * 20, begin := chance.randrange(1 << 50), begin + n
        )
        for n in range(500)
    ]
    table = RunTable.unpack(pickle.loads(pickle.dumps(RunTable.of(runs).pack())))
    assert list(table.runs()) == runs
    assert table.queues == [(run.topic, run.queue_id) for run in runs]
    few = table.part(np.array([3, 10]), np.array([1, 2]), np.array([5, 6]))
    assert few.topics == ("T3",)
    assert [(run.topic, run.from_index, run.to_index) for run in few.runs()] == [
        ("T3", 1, 5),
        ("T3", 2, 6),
    ]


# --- stores of RocketMQ --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return GoldenStores(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", case_names())
def test_every_unit_of_a_golden_store_is_in_one_partition(stores, name):
    options = SourceOptions.parse(
        {"path": str(stores.get(name).root), "topicPattern": ".*", "minPartitions": "7"}
    )
    with OfflineStore(stores.get(name).root) as store:
        spans = wanted_spans(store, options)
        parts = [part.part for part in plan_spans(store, "a", spans, options)]
        expected = Counter()
        for span in spans:
            queue = store.queues[span.key]
            first, last = queue.index_of(span.from_offset), queue.index_of(span.to_offset)
            for index in range(first, last):
                unit = queue.units(index, 1)
                if len(unit):
                    place = (int(unit["queue_offset"][0]), int(unit["physical_offset"][0]))
                    expected[(span.topic, span.queue_id, *place)] += 1
        readers = Readers(store.directory.ops)
        files = UnitFiles(store.directory.root, readers)
        found = Counter()
        for part in parts:
            found.update(places_of(part, files))
        readers.close()
    assert set(found.values()) <= {1}
    assert found == expected


def places_of(part, files):
    if isinstance(part, PlacesPart):
        places, numbers = part.unpack()
        queues = part.queues
    else:
        assert isinstance(part, QueuePart)
        read = read_units(files, part.table)
        places, numbers, queues = read.places, read.rows, part.table.queues
    for place, number in zip(places, numbers.tolist(), strict=True):
        yield (*queues[number], int(place["queue_offset"]), int(place["physical_offset"]))
