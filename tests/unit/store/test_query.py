"""Messages by key, by place and by id; times, totals and estimates."""

import pytest

from rocketlake.filters.message_filter import make_filter
from rocketlake.format.index import key_hash
from rocketlake.format.queue_unit import ExtUnit, ext_address
from rocketlake.model.hashes import tags_code
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.options import StoreOptions
from rocketlake.store.read.query import Query
from support.read_parts import BEGIN_MS, ReadParts

T = QueueKey("T", 0)
B = QueueKey("B", 0)
NONE = QueueKey("none", 0)


class SimpleIndex:
    """What an index knows: hashes, places and whole seconds; newest first."""

    def __init__(self):
        self.entries = []
        self.asked = 0

    def put(self, message):
        for key in filter(None, [message.unique_key, *message.keys]):
            seconds = (message.store_timestamp - BEGIN_MS) // 1000 * 1000
            hash_ = key_hash(message.topic, key)
            self.entries.append((hash_, message.physical_offset, BEGIN_MS + seconds))
        self.last = message

    @property
    def end_timestamp(self):
        return self.last.store_timestamp

    @property
    def end_physical_offset(self):
        return self.last.physical_offset

    def offsets(self, topic, key, begin, end):
        for hash_, offset, time in reversed(self.entries):
            if hash_ == key_hash(topic, key) and begin <= time <= end:
                self.asked += 1
                yield offset


@pytest.fixture
def parts(tmp_path):
    return ReadParts(tmp_path, queue_file_units=50, log_file_size=1 << 16)


@pytest.fixture
def index():
    return SimpleIndex()


@pytest.fixture
def put(parts, index):
    def put_(topic="T", **more):
        unit = parts.put(topic, **more)
        index.put(parts.log.message_at(unit.physical_offset))
        return unit

    return put_


@pytest.fixture
def make_query(parts, index):
    def make(*, is_indexed=True, memory_size=None, **options):
        chosen = StoreOptions.complete(StoreOptions.choose(None, **options))
        known = index if is_indexed else None
        return Query(parts.log, parts.queues, known, chosen, memory_size=memory_size)

    return make


# --- by key -----------------------------------------------------------------------------------


def test_messages_with_a_key_come_in_the_order_of_the_log(put, make_query):
    units = [put(keys=["k", "other"], body=b"%d" % i) for i in range(5)]
    put(keys=["another"])
    result = make_query().query(KeyQuery(topic="T", key="k"))
    assert [m.physical_offset for m in result.messages] == [u.physical_offset for u in units]
    assert [m.body for m in result.messages] == [b"0", b"1", b"2", b"3", b"4"]


def test_limit_keeps_the_newest_and_is_the_callers(put, make_query, index):
    for number in range(100):
        put(keys=["k"], body=b"%d" % number)
    query = make_query(max_msgs_num_batch=8)
    found = query.query(KeyQuery(topic="T", key="k", limit=3)).messages
    assert [m.body for m in found] == [b"97", b"98", b"99"]
    assert index.asked <= 4, "older ones need not be looked at"
    assert len(query.query(KeyQuery(topic="T", key="k", limit=90)).messages) == 90
    assert query.query(KeyQuery(topic="T", key="k", limit=0)).messages == []


def test_unique_key_is_a_key_and_one_message_comes_once(put, make_query):
    put(keys=["id", "k"], properties={"UNIQ_KEY": "id"})
    for key in ("id", "k"):
        assert len(make_query().query(KeyQuery(topic="T", key=key)).messages) == 1


def test_message_with_the_same_hash_and_another_key_or_topic_is_left_out(put, make_query):
    assert key_hash("T", "Aa") == key_hash("T", "BB")
    put(keys=["Aa"], body=b"mine")
    put(keys=["BB"], body=b"stranger")
    found = make_query().query(KeyQuery(topic="T", key="Aa", limit=1)).messages
    assert [m.body for m in found] == [b"mine"]
    assert key_hash("Aa", "x") == key_hash("BB", "x")
    put("BB", keys=["x"])
    assert make_query().query(KeyQuery(topic="Aa", key="x")).messages == []


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        (0, 1 << 62, [0, 1, 2]),
        (BEGIN_MS + 2000, BEGIN_MS + 2000, [1]),
        (BEGIN_MS + 2001, BEGIN_MS + 9000, [2]),
        (BEGIN_MS + 1001, BEGIN_MS + 2999, [1]),
        (BEGIN_MS + 4000, 1 << 62, []),
    ],
)
def test_store_time_is_compared_exactly(put, make_query, begin, end, found):
    for number in range(3):  # stored one, two and three seconds after the begin
        put(keys=["k"], body=b"%d" % number)
    query = KeyQuery(topic="T", key="k", begin=begin, end=end)
    assert [int(m.body) for m in make_query().query(query).messages] == found


def test_message_later_in_its_second_than_the_index_says_is_found(parts, put, make_query):
    parts.advance(700)
    put(keys=["k"])
    stored = parts.log.message_at(0).store_timestamp
    assert stored % 1000 == (BEGIN_MS + 700) % 1000
    query = KeyQuery(topic="T", key="k", begin=stored, end=stored)
    assert len(make_query().query(query).messages) == 1


def test_expired_and_damaged_messages_are_left_out(tmp_path, index):
    parts = ReadParts(tmp_path, log_file_size=400)
    units = [parts.put(keys=["k"], body=b"x" * 60) for _ in range(6)]
    for unit in units:
        index.put(parts.log.message_at(unit.physical_offset))
    parts.log.expire()
    parts.log.flip(units[-1].physical_offset + 88)
    options = StoreOptions.complete(StoreOptions.choose(None))
    query = Query(parts.log, parts.queues, index, options)
    found = query.query(KeyQuery(topic="T", key="k")).messages
    assert [m.queue_offset for m in found] == [2, 3, 4]


def test_result_tells_how_far_the_index_had_come(put, make_query):
    put(keys=["k"])
    unit = put()
    result = make_query().query(KeyQuery(topic="T", key="k"))
    assert result.index_physical_offset == unit.physical_offset
    assert result.index_timestamp == BEGIN_MS + 2000


def test_store_without_an_index_finds_nothing_by_key(put, make_query):
    put(keys=["k"])
    result = make_query(is_indexed=False).query(KeyQuery(topic="T", key="k"))
    assert (list(result.messages), result.index_timestamp) == ([], -1)


def test_query_without_a_topic_is_refused(make_query):
    with pytest.raises(ValueError, match="topic"):
        make_query().query(KeyQuery(topic=None, key="k"))


# --- by place and id ----------------------------------------------------------------------------


def test_message_is_found_by_its_place_and_by_its_id(put, make_query):
    put()
    unit = put(body=b"second")
    query = make_query()
    message = query.message_at(unit.physical_offset)
    assert message.body == b"second"
    assert query.message_by_id(message.msg_id) == message
    assert query.message_by_id(message.msg_id.lower()) == message
    other_host = "FFFFFFFF" + message.msg_id[8:]
    assert query.message_by_id(other_host) == message


def test_no_message_is_found_where_none_begins(put, make_query):
    unit = put()
    query = make_query()
    for offset in (1, unit.size, 1 << 40, -1):
        assert query.message_at(offset) is None
    with pytest.raises(ValueError, match="message id"):
        query.message_by_id("not an id")


# --- places and times ---------------------------------------------------------------------------


def test_unit_tells_place_and_time(parts, put, make_query):
    units = [put() for _ in range(3)]
    query = make_query()
    assert [query.physical_offset(T, i) for i in range(3)] == [u.physical_offset for u in units]
    assert [query.store_timestamp(T, i) for i in range(3)] == [
        BEGIN_MS + 1000 * i for i in (1, 2, 3)
    ]
    for key, offset in ((T, 3), (T, -1), (NONE, 0)):
        assert query.physical_offset(key, offset) == -1
        assert query.store_timestamp(key, offset) == -1
    parts.queue("T").min_offset = 1
    assert query.physical_offset(T, 0) == -1


def test_earliest_time_is_that_of_the_first_message_still_there(parts, put, make_query):
    query = make_query()
    assert query.earliest_time() == -1
    put()
    put()
    assert (query.earliest_time(), query.earliest_time(T)) == (BEGIN_MS + 1000, BEGIN_MS + 1000)
    parts.queue("T").min_offset = 1
    assert query.earliest_time(T) == BEGIN_MS + 2000
    assert query.earliest_time(NONE) == -1
    parts.queue("T").min_offset = 2
    assert query.earliest_time(T) == -1


def test_total_is_what_lies_between_the_bounds(parts, put, make_query):
    for _ in range(5):
        put()
    parts.queue("T").min_offset = 2
    assert (make_query().total(T), make_query().total(NONE)) == (3, 0)


def test_messages_near_the_end_are_taken_to_be_in_memory(parts, put, make_query):
    units = [put() for _ in range(10)]
    near = parts.log.max_offset - units[6].physical_offset
    query = make_query(memory_size=10 * near, access_message_in_memory_max_ratio=10)
    assert [query.is_in_memory(T, i) for i in range(11)] == [False] * 6 + [True] * 4 + [False]
    assert [query.is_on_disk(T, i) for i in range(11)] == [True] * 6 + [False] * 5
    assert not query.is_in_memory(NONE, 0)
    assert not query.is_on_disk(NONE, 0)


def test_message_is_in_the_store_while_its_file_is(tmp_path, index):
    parts = ReadParts(tmp_path, log_file_size=400)
    for _ in range(4):
        parts.put(body=b"x" * 60)
    options = StoreOptions.complete(StoreOptions.choose(None))
    query = Query(parts.log, parts.queues, index, options)
    assert [query.is_in_store(T, i) for i in range(5)] == [True] * 4 + [False]
    parts.log.expire()
    assert [query.is_in_store(T, i) for i in range(5)] == [False] * 2 + [True] * 2 + [False]
    assert not query.is_in_memory(T, 0)


# --- estimates ----------------------------------------------------------------------------------


@pytest.fixture
def tagged(put, parts):
    """A hundred messages, every fourth with the tag a."""
    for number in range(100):
        put(tags="a" if number % 4 == 0 else "b")
    assert len(parts.queue("T").files.files) == 2
    return parts


@pytest.mark.parametrize(
    ("begin", "end", "count"),
    [(0, 100, 25), (0, 4, 1), (1, 4, 0), (-9, 5, 2), (7, 7, 0), (9, 3, 0), (40, 500, 15)],
)
def test_messages_of_a_range_are_counted_by_their_units(tagged, make_query, begin, end, count):
    assert make_query().estimate_message_count(T, begin, end, make_filter("a")) == count


def test_without_a_filter_the_range_is_the_answer(tagged, make_query):
    assert make_query().estimate_message_count(T, 3, 500) == 497
    assert make_query().estimate_message_count(NONE, 0, 9) == 9
    assert make_query().estimate_message_count(NONE, 0, 9, make_filter("a")) == 0


def test_range_before_the_queue_is_moved_to_its_begin(tagged, make_query):
    tagged.queue("T").min_offset = 50
    assert make_query().estimate_message_count(T, 0, 8, make_filter("a")) == 2


def test_many_units_are_judged_by_the_first(tagged, make_query):
    query = make_query(max_consume_queue_scan=8)
    assert query.estimate_message_count(T, 0, 100, make_filter("a")) == 25
    assert query.estimate_message_count(T, 1, 100, make_filter("a")) == 2 * 99 // 8
    query = make_query(sample_count_threshold=1)
    assert query.estimate_message_count(T, 0, 100, make_filter("a")) == 2 * 100 // 5


def test_extension_unit_tells_the_code_of_its_message(parts, make_query):
    queue = parts.queue("T")
    for number, tags in enumerate(("a", "b", "c")):
        address = ext_address(100 * number)
        if tags != "c":
            queue.ext[address] = ExtUnit(tags_code(tags), BEGIN_MS)
        parts.put(tags=tags, code=address)
    # What cannot be found may be anything.
    assert make_query().estimate_message_count(T, 0, 3, make_filter("a")) == 2


def test_batches_count_as_many_as_they_hold(parts, make_query):
    for number in range(60):
        parts.put_inner_batch(3, tags="a" if number % 2 else "b")
    query = make_query()
    assert query.estimate_message_count(B, 0, 180, make_filter("a")) == 90
    assert query.estimate_message_count(B, 0, 7, make_filter("a")) == 3
    query = make_query(max_consume_queue_scan=4)
    assert query.estimate_message_count(B, 0, 180, make_filter("a")) == 90
