"""Streams of RocketMQ's own stores, and of stores that change at random: every message once."""

import random
from itertools import chain

import pytest

from spark.stream.stream_play import Play
from support.golden import GoldenStores, case_names
from support.store_builder import StoreBuilder


def places(rows):
    """What a row is, in order."""
    return sorted(
        (r["topic"], r["queue_id"], r["queue_offset"], r["physical_offset"]) for r in rows
    )


COLUMNS = ["topic", "queue_id", "queue_offset", "physical_offset"]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return GoldenStores(tmp_path_factory.mktemp("golden"))


# Every kind of store once; batches read all of them, and a stream reads the same parts.
CASES = [name for name in case_names() if name.startswith(("v5-", "v55-"))] + [
    "v4-expired",
    "v46-roll",
]


@pytest.mark.parametrize("name", CASES)
def test_batches_of_a_golden_store_are_its_messages(stores, name):
    golden = stores.get(name)
    wanted = sorted(
        (m["topic"], m["queueId"], m.get("cqOffset", m["queueOffset"]), m["physicalOffset"])
        for m in golden.case.messages
    )
    options = {"topicPattern": ".*", "onDamage": "asRecovered", "columns": COLUMNS}
    limits = [{"maxOffsetsPerTrigger": "37"}, {"maxBytesPerTrigger": "9000"}]
    batches = Play(golden.root, **limits[len(name) % 2], **options).drain()
    assert places(chain.from_iterable(batches)) == wanted
    records = Play(
        golden.root, onDamage="asRecovered", columns=COLUMNS, maxOffsetsPerTrigger="43"
    ).drain()
    found = places(chain.from_iterable(records))
    # Compat: a light queue, and a record in two queues, is one record of the log.
    assert {place[3] for place in found} >= {place[3] for place in wanted}
    assert len(found) == len({place[3] for place in found})


class Life:
    """A store to which things happen, and a query that is killed and started over it."""

    def __init__(self, root, seed):
        self.chance = random.Random(seed)
        self.builder = StoreBuilder(root, log_file_size=1500)
        self.options = {
            "topicPattern": "T.*",
            "failOnDataLoss": "false",
            **self.chance.choice(
                [
                    {},
                    {"maxOffsetsPerTrigger": str(self.chance.randint(1, 9))},
                    {"maxBytesPerTrigger": str(self.chance.randint(1, 900))},
                ]
            ),
        }
        self.offsets = []
        self.seen = {}
        self.expired = 0
        self.dispatched = 0
        self.builder.unclean().checkpoint(0, 0, 0)  # as a store in use, which owes units
        self.append(5)
        self.restart()

    def append(self, count):
        for _ in range(count):
            topic, queue = f"T{self.chance.randint(0, 2)}", self.chance.randint(0, 3)
            body = b"x" * self.chance.randint(0, 200)
            self.builder.record(topic, queue, body)
        self.write()

    def write(self):
        """Bring the store to disk, with queues that lack the newest messages."""
        whole, count = self.builder._units, len(self.builder.placed)
        # What dispatch has written once stays.
        self.dispatched = max(self.dispatched, count - self.chance.choice((0, 0, 3, 9)))
        owed = self.builder.placed[self.dispatched :]
        lacking = {name: dict(units) for name, units in whole.items()}
        for place in owed:
            lacking["consumequeue", place.topic, place.queue_id].pop(place.queue_offset)
        self.builder._units = lacking
        self.builder.write()
        self.builder._units = whole

    def expire(self):
        if len(self.builder._log) > 2:
            self.builder.expire(1)
            self.write()
            self.expired += 1

    def restart(self):
        available_now = self.chance.random() < 0.3
        self.play = Play(
            self.builder.root,
            self.offsets,
            COLUMNS,
            available_now=available_now,
            **self.options,
        )

    def crash(self):
        """The last batch is read again: what it still finds is what it was, or expired."""
        self.restart()
        if self.offsets:
            again = places(self.play.again(len(self.offsets) - 1))
            number = len(self.offsets) - 1
            first = min((base for base in self.builder._log), default=0)
            assert again == [place for place in self.seen[number] if place[3] >= first]

    def step(self):
        rows = self.play.step()
        if rows is not None:
            self.seen[len(self.offsets) - 1] = places(rows)

    def finish(self):
        self.options["failOnDataLoss"] = "false"
        self.play = Play(self.builder.root, self.offsets, COLUMNS, **self.options)
        while (rows := self.play.step()) is not None:
            self.seen[len(self.offsets) - 1] = places(rows)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_message_is_read_once_or_expired(tmp_path, seed):
    life = Life(tmp_path / "s", seed)
    moves = [life.step, life.step, life.crash, lambda: life.append(life.chance.randint(1, 30))]
    for _ in range(25):
        life.chance.choice([*moves, life.expire] if seed % 2 else moves)()
    life.finish()
    seen = list(chain.from_iterable(life.seen.values()))
    assert len(seen) == len(set(seen))
    first = min(life.builder._log)
    wanted = {(p.topic, p.queue_id, p.queue_offset, p.physical_offset) for p in life.builder.placed}
    assert set(seen) <= wanted
    assert {place for place in wanted if place[3] >= first} <= set(seen)
    if not life.expired:
        assert set(seen) == wanted
