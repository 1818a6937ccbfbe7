from pathlib import Path

import pytest

from rocketlake.metadata import filters
from rocketlake.metadata.filters import BloomBits, ConsumerFilter

TABLES = Path(__file__).parent / "tables"


@pytest.mark.parametrize(
    ("version", "born_time"), [("v5-config", 1794778016319), ("v4-config", 1794777963169)]
)
def test_table_is_read(version, born_time):
    table = filters.load(TABLES / version)
    assert table.get("TopicTest", "CG_sql") == ConsumerFilter(
        topic="TopicTest",
        consumer_group="CG_sql",
        expression="a > 5 AND b = 'x'",
        expression_type="SQL92",
        born_time=born_time,
        dead_time=0,
        client_version=1,
        bloom_filter_data=BloomBits(112, [30, 35, 71]),
    )


def test_several_groups_of_a_topic_are_read():
    table = filters.load(TABLES / "v5-ext")
    assert list(table.topics["SqlTopic"]) == ["CG1", "CG3", "CG2"]
    cg1 = table.get("SqlTopic", "CG1")
    assert cg1 is not None
    assert cg1.bloom_filter_data == BloomBits(112, [39, 104, 104])
    assert table.get("SqlTopic", "CG4") is None
    assert table.get("Other", "CG1") is None


def test_dead_is_derived_from_the_times():
    assert not ConsumerFilter(topic="T", consumer_group="G", born_time=5, dead_time=0).is_dead
    assert ConsumerFilter(topic="T", consumer_group="G", born_time=5, dead_time=5).is_dead


def test_absent_members_are_taken_from_the_keys():
    table = filters.decode({"filterDataByTopic": {"T": {"groupFilterData": {"G": {}}}}})
    assert table.get("T", "G") == ConsumerFilter(topic="T", consumer_group="G")
    assert filters.decode({}) == filters.FilterTable()


def test_wrong_type_is_refused_by_the_name_of_the_member():
    value = {"filterDataByTopic": {"T": {"groupFilterData": {"G": {"bornTime": "x"}}}}}
    with pytest.raises(ValueError, match="Expected") as caught:
        filters.decode(value)
    assert str(caught.value) == (
        "filterDataByTopic['T'].groupFilterData['G'].bornTime: Expected `int`, got `str`"
    )


def test_missing_files_give_an_empty_table(tmp_path):
    assert filters.load(tmp_path) == filters.FilterTable()
