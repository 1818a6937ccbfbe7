"""Config tables of the golden stores hold what the spec put into them."""

import pytest

from rocketlake.files.json_file import backup_path, load_table
from rocketlake.metadata import filters, groups, offsets, topics
from rocketlake.model.queues import QueueKey

CONFIG_CASES = ("v4-config", "v5-config")


def test_every_table_can_be_read(golden):
    tables = [path for path in golden.files("config") if ".json" in path.name]
    for path in tables:
        loaded = load_table(path)
        assert loaded.problem is None
        assert loaded.value, f"{path} is empty"
    loaders = (topics.load, groups.load, offsets.load, offsets.load_delay, filters.load)
    for load in loaders:
        load(golden.root / "config")


@pytest.mark.parametrize("name", CONFIG_CASES)
def test_topics(stores, name):
    golden = stores.get(name)
    table = topics.load(golden.root / "config")
    assert table.version is not None
    for wanted in golden.case.spec["config"]["topics"]:
        found = table.topics[wanted["name"]]
        assert found.name == wanted["name"]
        assert found.read_queue_count == wanted.get("readQueueNums", 4)
        assert found.write_queue_count == wanted.get("writeQueueNums", 4)
        assert found.perm == wanted.get("perm", 6)
        assert found.order == wanted.get("order", False)
        assert found.attributes == wanted.get("attributes", {})
    assert table.topics["BatchTopic"].is_batch if name == "v5-config" else True


@pytest.mark.parametrize("name", CONFIG_CASES)
def test_groups(stores, name):
    golden = stores.get(name)
    table = groups.load(golden.root / "config")
    for wanted in golden.case.spec["config"]["groups"]:
        found = table.groups[wanted["name"]]
        assert found.retry_max_times == wanted.get("retryMaxTimes", 16)
        assert found.retry_queue_count == wanted.get("retryQueueNums", 1)
        assert found.consume_enable


@pytest.mark.parametrize("name", CONFIG_CASES)
def test_offsets_and_those_before_them(stores, name):
    golden = stores.get(name)
    config = golden.case.spec["config"]
    early = {
        (line["topic"], line["group"], line["queueId"]): line["offset"]
        for line in config["offsets"]
    }
    later = early | {
        (line["topic"], line["group"], line["queueId"]): line["offset"]
        for line in config["laterOffsets"]
    }
    assert early != later
    path = golden.root / "config" / offsets.FILE_NAME
    for table, wanted in (
        (offsets.load(path.parent), later),
        (offsets.decode(load_table(backup_path(path)).value), early),
    ):
        assert {
            (progress.topic, progress.group, queue_id): offset
            for progress in table.progress()
            for queue_id, offset in progress.offsets.items()
        } == wanted


@pytest.mark.parametrize("name", [*CONFIG_CASES, "v4-ext", "v5-ext"])
def test_filters(stores, name):
    golden = stores.get(name)
    table = filters.load(golden.root / "config")
    for wanted in golden.case.spec["filters"]:
        found = table.get(wanted["topic"], wanted["group"])
        assert found is not None
        assert (found.expression, found.expression_type) == (wanted["expression"], "SQL92")
        assert found.bloom_filter_data is not None
        assert found.bloom_filter_data.bit_num == 112


@pytest.mark.parametrize("name", ["v4-delay-after", "v46-delay-after", "v5-delay-after"])
def test_delay_offsets_are_those_delivered(open_case, name):
    opened = open_case(name)
    table = offsets.load_delay(opened.root / "config")
    for level, offset in table.offsets.items():
        queue = opened.view.queues[QueueKey("SCHEDULE_TOPIC_XXXX", level - 1)]
        assert 0 <= offset <= queue.max_offset
    # Levels 1 and 2 were due, level 18 (2 h) was not; 4.x does not write its 0.
    assert {level: offset for level, offset in table.offsets.items() if offset} == {1: 3, 2: 2}
    assert table.offsets.get(18, 0) == 0
