from pathlib import Path

import pytest

from rocketlake.errors import StoreError
from rocketlake.metadata import topics
from rocketlake.metadata.table import DataVersion
from rocketlake.model.topics import TopicConfig, TopicFilterType

TABLES = Path(__file__).parent / "tables"


def test_table_of_5x_is_read():
    table = topics.load(TABLES / "v5-config")
    assert len(table.topics) == 17
    assert table.version == DataVersion(5, 1794778017586, 0)
    assert table.topics["BatchTopic"] == TopicConfig(
        name="BatchTopic",
        read_queue_count=4,
        write_queue_count=4,
        perm=6,
        attributes={"queue.type": "BatchCQ"},
    )
    assert table.topics["TopicTest"].read_queue_count == 8
    assert table.topics["TopicTest"].write_queue_count == 4
    assert table.topics["OrderedTopic"].order
    assert not table.topics["ReadOnly"].is_writable
    assert next(iter(table.topics)) == "BatchTopic"


def test_table_of_4x_is_read():
    table = topics.load(TABLES / "v4-config")
    assert len(table.topics) == 11
    assert table.version == DataVersion(3, 1794777963849)
    assert table.topics["TopicTest"].attributes == {}
    assert table.topics["SCHEDULE_TOPIC_XXXX"].read_queue_count == 18


def test_table_with_a_reference_is_read():
    table = topics.load(TABLES / "classes")
    assert table.topics["odd.n-a_m%e|"] == TopicConfig(
        name="odd.n-a_m%e|", filter_type=TopicFilterType.MULTI_TAG, sys_flag=3
    )


def test_absent_and_null_members_have_their_defaults():
    table = topics.decode({"topicConfigTable": {"T": {"perm": None, "topicName": None}, "U": {}}})
    assert table.topics == {"T": TopicConfig(name="T"), "U": TopicConfig(name="U")}
    assert table.version is None


def test_null_entries_are_left_out():
    assert topics.decode({"topicConfigTable": {"T": None}}).topics == {}
    assert topics.decode({"topicConfigTable": None, "dataVersion": None}).topics == {}
    assert topics.decode({}).topics == {}


def test_unknown_members_are_passed_over():
    table = topics.decode({"topicConfigTable": {"T": {"later": [1]}}, "more": 1})
    assert table.topics == {"T": TopicConfig(name="T")}


def test_name_may_be_anything_and_is_the_key():
    names = ["a@b", '"', "中", "", "x" * 300]
    table = topics.decode({"topicConfigTable": {name: {} for name in names} | {7: {}}})
    assert list(table.topics) == [*names, "7"]
    table = topics.decode({"topicConfigTable": {"T": {"topicName": "other"}}})
    assert table.topics["T"].name == "T", "a broker looks a topic up by its key"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"topicConfigTable": {"T": {"perm": "6"}}},
            "topicConfigTable['T'].perm: Expected `int`, got `str`",
        ),
        (
            {"topicConfigTable": {"T": {"attributes": {"a": 1}}}},
            "topicConfigTable['T'].attributes[...]: Expected `str`, got `int`",
        ),
        (
            {"topicConfigTable": {"T": {"topicFilterType": "X"}}},
            "topicConfigTable['T'].topicFilterType: Invalid enum value 'X'",
        ),
        ({"topicConfigTable": {"T": 5}}, "topicConfigTable['T']: Expected `object`, got `int`"),
        ({"topicConfigTable": []}, "topicConfigTable: Expected `object`, got `list`"),
        ({"dataVersion": {"counter": "x"}}, "dataVersion.counter: Expected `int`, got `str`"),
    ],
)
def test_wrong_type_is_refused_by_the_name_of_the_member(value, message):
    with pytest.raises(ValueError, match=r"Expected|Invalid") as caught:
        topics.decode(value)
    assert str(caught.value) == message


def test_missing_files_give_an_empty_table(tmp_path):
    assert topics.load(tmp_path) == topics.TopicTable()


def test_backup_is_used_with_a_warning(tmp_path, caplog):
    (tmp_path / "topics.json").write_text('{"topicConfigTable":{"T":{"perm":"x"}}}')
    (tmp_path / "topics.json.bak").write_text('{"topicConfigTable":{"T":{"perm":4}}}')
    assert topics.load(tmp_path).topics["T"].perm == 4
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "topicConfigTable['T'].perm: Expected `int`" in record.getMessage()


def test_table_that_is_lost_is_an_error_that_names_file_and_member(tmp_path):
    (tmp_path / "topics.json").write_text('{"topicConfigTable":{"T":{"perm":"x"}}}')
    with pytest.raises(StoreError) as caught:
        topics.load(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: topics.json: topicConfigTable['T'].perm: Expected `int`, got `str`; "
        "topics.json.bak is missing"
    )
