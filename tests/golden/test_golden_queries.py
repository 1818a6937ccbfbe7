"""Questions by key and by time get RocketMQ's answers."""

import pytest

from rocketlake.model.message import split_keys
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import Boundary, KeyQuery


def test_keys_find_the_messages_that_have_them(opened):
    records = {record.physical_offset: record for record in opened.records}
    for query in opened.case.key_queries:
        answer = zip(query["physicalOffsets"], query["topics"], query["messageKeys"], strict=True)
        # RocketMQ goes by hash alone; the answer tells which of them really have the key.
        wanted = [
            offset
            for offset, topic, keys in answer
            if topic == query["topic"]
            and (query["key"] in split_keys(keys) or query["key"] == records[offset].unique_key)
        ]
        found = opened.view.find(KeyQuery(topic=query["topic"], key=query["key"]))
        assert [message.physical_offset for message in found] == wanted
        assert all(message == records[message.physical_offset] for message in found)


def test_tags_find_the_messages_that_have_them(open_case):
    opened = open_case("v55-index")
    records = {record.physical_offset: record for record in opened.records}
    asked = [query for query in opened.case.key_queries if query["key"].startswith("T#")]
    for query in asked:
        topic, tag = query["topic"], query["key"].removeprefix("T#")
        answer = [records[at] for at in query["physicalOffsets"]]
        wanted = [r.physical_offset for r in answer if (r.topic, r.tags) == (topic, tag)]
        found = opened.view.find(KeyQuery(topic=topic, key=tag, is_tag=True))
        assert [message.physical_offset for message in found] == wanted
    assert sum(bool(query["physicalOffsets"]) for query in asked) > 3


@pytest.mark.parametrize("name", ["v4-index", "v46-index", "v5-index", "v55-index"])
def test_colliding_keys_are_told_apart(open_case, name):
    opened = open_case(name)
    answers = {
        (query["topic"], query["key"]): query["physicalOffsets"]
        for query in opened.case.key_queries
    }
    colliding = [("IdxTopic", "Aa"), ("IdxTopic", "BB")]
    assert answers[colliding[0]] == answers[colliding[1]], "RocketMQ takes one for the other"
    found = [opened.view.find(KeyQuery(topic=topic, key=key)) for topic, key in colliding]
    offsets = [{message.physical_offset for message in messages} for messages in found]
    assert offsets[0]
    assert offsets[1]
    assert offsets[0].isdisjoint(offsets[1])
    assert offsets[0] | offsets[1] == set(answers[colliding[0]])


def test_a_key_without_its_topic_is_found_in_every_topic(opened):
    for query in opened.case.key_queries:
        wanted = {
            record.physical_offset
            for record in opened.records
            if query["key"] in record.keys or query["key"] == record.unique_key
        }
        found = opened.view.find(KeyQuery(topic=None, key=query["key"], limit=1 << 30))
        rolled_back = {
            record.physical_offset for record in opened.records if record.sys_flag & 0xC == 0xC
        }
        assert {message.physical_offset for message in found} == wanted - rolled_back


def test_times_find_the_offsets_of_the_release(opened):
    for query in opened.case.time_queries:
        key, timestamp = QueueKey(query["topic"], query["queueId"]), query["timestamp"]
        if opened.case.is_5x:
            lower = opened.view.offset_by_time(key, timestamp)
            upper = opened.view.offset_by_time(key, timestamp, Boundary.UPPER)
            assert (timestamp, lower, upper) == (timestamp, query["lower"], query["upper"])
            assert query["offset"] == query["lower"]
        else:
            nearest = opened.view.nearest_offset_by_time(key, timestamp)
            assert (timestamp, nearest) == (timestamp, query["offset"])


def test_there_are_questions_enough(stores):
    names = ("v4-roll", "v46-roll", "v5-roll", "v5-expired", "v5-batchcq")
    for name in names:
        assert len(stores.get(name).case.time_queries) > 10
