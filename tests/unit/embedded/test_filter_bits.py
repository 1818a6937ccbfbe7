"""Bits of SQL92 subscriptions that a broker has left in consumerFilter.json."""

import rocketlake
from rocketlake import Message
from rocketlake.clock import SystemClock
from rocketlake.files.ops import PosixFileOps
from rocketlake.filters.bloom import BloomFilter
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.filters import FilterBook
from rocketlake.model.queues import QueueKey


def test_bits_stand_beside_the_units_of_the_topic(tmp_path):
    place = TableLocation(PosixFileOps(), SystemClock(), tmp_path / "config")
    book = FilterBook.load(place)
    assert book.register("T", "G", "a > 5", 1)
    book.persist()
    options = {"enable_calc_filter_bit_map": True, "enable_consume_queue_ext": True}
    bloom = BloomFilter.sized()
    positions = bloom.bit_positions("G", "T")
    with rocketlake.open_store(tmp_path, **options) as store:
        for value in ("4", "6", "x"):
            store.put(Message(topic="T", body=b"", properties={"a": value}), queue_id=0)
        store.flush()
        assert store.max_offset("T", 0) == 3
        queue = store._engine.queues.find(QueueKey("T", 0))
        units = [queue.ext_unit(int(code)) for code in queue.units(0, 9)["tags_code"]]
        assert [bloom.is_hit(positions, unit.bitmap) for unit in units] == [False, True, False]
