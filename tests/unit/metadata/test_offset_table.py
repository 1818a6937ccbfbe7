from pathlib import Path

import pytest

from rocketlake.errors import StoreError
from rocketlake.metadata import offsets
from rocketlake.metadata.offsets import DelayOffsetTable, GroupProgress, OffsetTable

TABLES = Path(__file__).parent / "tables"


@pytest.mark.parametrize("version", ["v5-config", "v4-config"])
def test_offsets_of_groups_are_read(version):
    table = offsets.load(TABLES / version)
    assert list(table.progress()) == [
        GroupProgress("OrderedTopic", "CG_2", {0: 9_000_000_000}),
        GroupProgress("TopicTest", "CG_1", {0: 99, 1: 11, 2: 12, 3: 13}),
    ]
    assert table.get("TopicTest", "CG_1", 3) == 13
    assert table.get("TopicTest", "CG_1", 4) is None
    assert table.get("TopicTest", "CG_2", 0) is None
    assert (table.version is None) == (version == "v4-config")


def test_offsets_of_light_queues_are_read():
    table = offsets.load_light(TABLES / "classes")
    assert table.get("%LMQ%q1", "%LMQ%g1", 0) == 12
    assert table.get("%LMQ%q2", "%LMQ%g1", 0) == 9_000_000_000
    assert len(table.offsets) == 2


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v5-delay-after", {1: 3, 2: 2, 18: 0}),
        ("v4-delay-after", {1: 3, 2: 2}),
        ("v46-delay-after", {1: 3, 2: 2, 18: 0}),
        ("v5-config", {}),
    ],
)
def test_offsets_of_delay_levels_are_read(version, expected):
    table = offsets.load_delay(TABLES / version)
    assert table.offsets == expected
    assert (table.version is not None) == version.startswith("v5")


@pytest.mark.parametrize(
    ("key", "names"),
    [
        # What String#split("@") makes of them.
        ("T@G", ("T", "G")),
        ("%RETRY%G@G", ("%RETRY%G", "G")),
        ("@G", ("", "G")),
        ("T@G@", ("T", "G")),
        ("T@G@@", ("T", "G")),
        ("T@", None),
        ("T", None),
        ("", None),
        ("@", None),
        ("T@G@x", None),
        ("T@@G", None),
        ("@@G", None),
    ],
)
def test_key_is_split_as_the_reference_splits_it(key, names):
    assert offsets.split_key(key) == names


def test_keys_without_topic_and_group_are_kept_but_not_listed():
    table = offsets.decode({"offsetTable": {"T@G@x": {0: 1}, "T@G": {0: 2}}})
    assert table.offsets == {"T@G@x": {0: 1}, "T@G": {0: 2}}
    assert list(table.progress()) == [GroupProgress("T", "G", {0: 2})]
    assert table.get("T", "G@x", 0) == 1


def test_queue_ids_may_be_quoted():
    assert offsets.decode({"offsetTable": {"T@G": {"0": 1, 1: 2}}}).offsets == {"T@G": {0: 1, 1: 2}}
    assert offsets.decode_delay({"offsetTable": {"3": 1}}) == DelayOffsetTable({3: 1})


def test_absent_tables_are_empty():
    assert offsets.decode({}) == OffsetTable()
    assert offsets.decode_light({"offsetTable": {}}) == OffsetTable()
    assert offsets.decode_delay({"offsetTable": None}) == DelayOffsetTable()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"T@G": {0: "x"}}, "offsetTable['T@G'][...]: Expected `int`, got `str`"),
        ({"T@G": {"x": 1}}, "offsetTable['T@G'] key: Expected `int`, got `str`"),
        ({"T@G": 5}, "offsetTable['T@G']: Expected `object`, got `int`"),
    ],
)
def test_wrong_type_is_refused_by_the_name_of_the_key(value, message):
    with pytest.raises(ValueError, match="Expected") as caught:
        offsets.decode({"offsetTable": value})
    assert str(caught.value) == message


def test_table_that_is_lost_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "delayOffset.json").write_text("")
    (tmp_path / "delayOffset.json.bak").write_text('{"offsetTable":{1:"a"}}')
    with pytest.raises(StoreError, match=r"delayOffset.json: the file is empty; delayOffset.json"):
        offsets.load_delay(tmp_path)


@pytest.mark.parametrize("backup", [None, "", "\n"])
def test_files_without_content_give_an_empty_table(tmp_path, caplog, backup):
    (tmp_path / "delayOffset.json").write_text("")
    if backup is not None:
        (tmp_path / "delayOffset.json.bak").write_text(backup)
    assert offsets.load_delay(tmp_path) == DelayOffsetTable()
    assert "table is empty path=" in caplog.text


def test_missing_files_give_empty_tables(tmp_path):
    assert offsets.load(tmp_path) == OffsetTable()
    assert offsets.load_light(tmp_path) == OffsetTable()
    assert offsets.load_delay(tmp_path) == DelayOffsetTable()
