"""Options are read as documented, and what is wrong with one is said in its own words."""

import pytest

from rocketlake.errors import ConfigError
from rocketlake.spark.reading.options import EARLIEST, LATEST, ReadBound, SourceOptions, Table


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({"path": "/data/broker-a", **options})


def test_a_path_alone_is_enough() -> None:
    options = parse()
    assert options.paths == (("broker-a", "/data/broker-a"),)
    assert options.table is Table.MESSAGES
    assert not options.has_topic


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/a/x,/b/y", (("x", "/a/x"), ("y", "/b/y"))),
        ("/a/store,/b/store", (("store", "/a/store"), ("b/store", "/b/store"))),
        ("one=/a/store, two=/b/store", (("one", "/a/store"), ("two", "/b/store"))),
        ("file:///a/x", (("x", "/a/x"),)),
    ],
)
def test_several_stores_have_names(path: str, wanted: object) -> None:
    assert parse(path=path).paths == wanted


def test_more_stores_than_one_path_has_room_for() -> None:
    paths = [f"/data/{number:0100d}" for number in range(100)]
    parsed = SourceOptions.parse({"path": ",".join(paths)})
    assert [path for _, path in parsed.paths] == paths


def test_load_with_a_list_of_paths() -> None:
    assert SourceOptions.parse({"paths": '["/a/x", "/b/y"]'}).paths == (
        ("x", "/a/x"),
        ("y", "/b/y"),
    )


def test_names_do_not_care_for_case() -> None:
    assert parse(topicpattern="o.*", MINPARTITIONS="3").min_partitions == 3


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"startingOffsets": "latest"}, ReadBound(LATEST)),
        ({"startingOffsets": '{"t": {"0": 5, "1": -1}}'}, ({"t": {0: 5, 1: -1}}, False)),
        ({"startingTimestamp": "1767225600000"}, ReadBound(1767225600000, is_time=True)),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, ReadBound(1767225600000, is_time=True)),
        (
            {"startingTimestamp": "2026-01-01T01:00:00+01:00"},
            ReadBound(1767225600000, is_time=True),
        ),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 7}}'}, ({"t": {0: 7}}, True)),
    ],
)
def test_where_to_begin(given: dict[str, str], wanted: object) -> None:
    found = parse(topic="t", **given).starting
    if isinstance(wanted, tuple):
        assert (found.by_queue, found.is_time) == wanted
        assert found.of("t", 9) == (EARLIEST, False)
    else:
        assert found == wanted


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topik": "t"}, "no option 'topik'; did you mean 'topic'?"),
        ({"nonsense": "t"}, "no option 'nonsense'; there are path"),
        ({"startingOfsets": "latest"}, "did you mean 'startingOffsets'?"),
        (
            {"table": "logs"},
            "wanted one of messages, log, queue, index, progress, checkpoint, damage",
        ),
        ({"topic": "a", "topics": "b"}, "one of the options topic and topics"),
        ({"topic": " , "}, "names no topic"),
        ({"topicPattern": "["}, "not a regular expression"),
        ({"topic": "t", "queueIds": "0,x"}, "wanted numbers like 0,1 or 0-3"),
        ({"topic": "t", "queueIds": "3-0"}, "wanted numbers like 0,1 or 0-3"),
        ({"topic": "t", "startingOffsets": '{"t": {"0": 1, "0": 2}}'}, "'0' is named twice"),
        ({"topic": "t", "startingOffsets": "soon"}, "earliest, latest or JSON like"),
        ({"topic": "t", "startingOffsets": '{"t": [1]}'}, "earliest, latest or JSON like"),
        ({"topic": "t", "startingOffsets": '{"t": {"0": -3}}'}, "-3 of queue t/0 is below -2"),
        ({"topic": "t", "startingOffsets": '{"t": {"a": 3}}'}, "JSON like"),
        ({"topic": "t", "startingTimestamp": "yesterday"}, "or 2026-01-31T23:59:59Z"),
        ({"topic": "t", "startingTimestamp": "-5"}, "the least is 0, in 1970"),
        (
            {"topic": "t", "startingTimestamp": "2026-01-31", "timeZone": "Mars"},
            "is not a time zone",
        ),
        (
            {"topic": "t", "startingTimestamp": "1", "startingOffsets": "latest"},
            "one of the options startingOffsets and startingTimestamp",
        ),
        ({"subscribe": "a", "topics": "b"}, "one of the options topics and subscribe"),
        ({"subscribePattern": "["}, "option subscribePattern = '[': not a regular expression"),
        ({"assign": '{"t": []}'}, "option assign: [] of topic t: wanted queue numbers"),
        ({"assign": '{"t": [-1]}'}, "option assign: [-1] of topic t"),
        ({"assign": "t"}, 'wanted JSON like {"topic": [0, 1]}'),
        ({"assign": "{}"}, "option assign = '{}': it names no topic"),
        ({"assign": '{"t": [0]}', "queueIds": "1"}, "one of the options assign and queueIds"),
        ({"kafka.bootstrap.servers": "a:9092"}, "no broker is asked: leave it out, and give path"),
        ({"kafka.security.protocol": "SSL"}, "it is for Kafka's clients: leave it out"),
        ({"includeHeaders": "true"}, "the column properties always has them"),
        ({"groupIdPrefix": "x"}, "a stream has the option group"),
        ({"subscribr": "x"}, "did you mean 'subscribe'?"),
        ({"columns": "queue_id,boddy"}, "no column 'boddy'; did you mean 'body'? There are topic"),
        ({"columns": "offset"}, "no column 'offset'; did you mean 'queue_offset'?"),
        ({"columns": "tags,tags"}, "wanted names like queue_id,tags, each once"),
        ({"columns": " , "}, "wanted names like queue_id,tags, each once"),
        ({"table": "queue", "columns": "body"}, "no column 'body'"),
        ({"table": "index", "subscribe": "t"}, "subscribe does not go with table = index"),
        ({"startingOffsets": '{"t": {"0": 1}}'}, "startingOffsets needs a topic"),
        ({"queueIds": "1"}, "queueIds needs a topic"),
        ({"minPartitions": "0"}, "minPartitions = '0'"),
        ({"minPartitions": "many"}, "wanted a number"),
        ({"maxPartitionBytes": "64q"}, "wanted bytes, like 67108864 or 64m"),
        ({"onDamage": "ignore"}, "wanted one of fail, skip, asRecovered"),
        ({"failOnDataLoss": "no"}, "wanted true or false"),
        ({"topic": "t", "tags": "||"}, "option tags: "),
        ({"topic": "t", "sql": "a >"}, "option sql: "),
        ({"table": "index", "topic": "t"}, "topic does not go with table = index"),
        ({"table": "queue", "sql": "a > 1"}, "sql does not go with table = queue"),
        ({"options": '{"mappedFileSizeComitLog": 1}'}, "mappedFileSizeCommitLog"),
        ({"path": "hdfs://host/store"}, "not in hdfs; mount it"),
        ({"path": "x=/a,x=/b"}, "two stores are named 'x'"),
        ({"path": "/a,/a"}, "option path: /a is named twice"),
        ({"path": "x=/a,y=/b/../a"}, "option path: /b/../a is named twice"),
        ({"path": ""}, 'option "path" is missing'),
        ({"paths": "{"}, "option paths"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**options)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("zone", "text", "wanted"),
    [
        ("UTC", "1970-01-02", 86_400_000),
        ("Asia/Tokyo", "1970-01-02", 54_000_000),
        ("-01:00", "1970-01-02", 90_000_000),
        ("Asia/Tokyo", "1970-01-02T00:00Z", 86_400_000),
    ],
)
def test_time_zone_applies_to_times_that_name_none(zone: str, text: str, wanted: int) -> None:
    found = parse(topic="t", startingTimestamp=text, timeZone=zone).starting
    assert found == ReadBound(wanted, is_time=True)


def test_sizes_have_units() -> None:
    assert parse(maxPartitionBytes="64m").max_partition_bytes == 64 << 20
    assert parse(maxPartitionBytes="1 KiB").max_partition_bytes == 1024


def test_options_take_every_key_of_a_store() -> None:
    found = parse(options='{"compatVersion": "5.3", "storeType": "defaultRocksDB"}')
    assert found.read_options == parse().read_options
    found = parse(options='{"compatVersion": "5.3", "maxHashSlotNum": 100}')
    assert found.read_options.max_hash_slot_num == 100


def test_names_of_kafka_choose_topics_and_queues() -> None:
    assert parse(subscribe="a, b").topics == ("a", "b")
    assert parse(subscribePattern="o.*").wants_topic("orders")
    options = parse(assign='{"a": [0, 2], "b": [1]}')
    wanted = [(t, q) for t in ("a", "b", "c") for q in range(3) if options.wants_queue(t, q)]
    assert wanted == [("a", 0), ("a", 2), ("b", 1)]


def test_columns_are_the_schema_in_their_order() -> None:
    assert parse(columns="tags, queue_id").schema.fieldNames() == ["tags", "queue_id"]
    assert parse(table="queue", columns="topic").schema.fieldNames() == ["topic"]
