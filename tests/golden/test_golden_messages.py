"""We read exactly the messages that RocketMQ reads, and find what each put wrote."""

from base64 import b64decode, b64encode

import pytest

from rocketlake import config
from rocketlake.format.queue_unit import is_ext_address
from rocketlake.format.record import StoredMessage
from rocketlake.model.flags import TransactionType, transaction_type
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import OfflineStore
from rocketlake.store.options import ReadOptions


def as_line(message: StoredMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "msgId": message.msg_id,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
        "body": b64encode(message.stored_body).decode(),
    }


def test_messages_are_the_expected_ones(opened):
    unit_keys = {"tagsCode", "ext", "cqOffset", "batchNum", "inflated"}
    wanted = [
        {name: value for name, value in line.items() if name not in unit_keys}
        for line in opened.case.messages
    ]
    assert [as_line(message) for _, _, message in opened.messages] == wanted
    assert wanted or opened.case.missing, "the case shows no message"


def test_messages_are_the_same_with_the_options_of_the_spec(opened):
    (options,) = config.load(opened.case.options(opened.root), ReadOptions)
    with OfflineStore(opened.root, log_dirs=opened.golden.log_dirs, options=options) as view:
        found = [
            as_line(message)
            for key in view.queues
            for batch in view.messages(key)
            for message in batch.columns.messages()
        ]
        bounds = {key: (queue.min_offset, queue.max_offset) for key, queue in view.queues.items()}
        assert bounds == {QueueKey(*key): wanted for key, wanted in opened.case.bounds.items()}
    assert found == [as_line(message) for _, _, message in opened.messages]


def test_units_are_the_expected_ones(opened):
    found = [
        (key.topic, key.queue_id, place["queue_offset"], place["batch_size"], place["tags_code"])
        for key, place, _ in opened.messages
        if not is_ext_address(int(place["tags_code"]))
    ]
    # A light queue holds messages of another topic: its name is in no line of a message.
    has_light = opened.case.name.endswith("-lmq")
    wanted = [
        (
            *(line["topic"], line["queueId"]),
            *(line.get("cqOffset", line["queueOffset"]), line.get("batchNum", 1)),
            line["tagsCode"],
        )
        for line in opened.case.messages
        if "ext" not in line
    ]
    if has_light:
        assert [line[2:] for line in found] == [line[2:] for line in wanted]
    else:
        assert found == wanted


def test_extension_units_are_the_expected_ones(opened):
    found = []
    for key, place, _ in opened.messages:
        address = int(place["tags_code"])
        if is_ext_address(address):
            unit = opened.view.ext_unit(key, address)
            assert unit is not None, f"no unit at {address} of {key}"
            line = {
                "size": unit.size,
                "tagsCode": unit.tags_code,
                "msgStoreTime": unit.store_timestamp,
                "filterBitMap": unit.bitmap.hex() or None,
            }
            # 5.x hands out the code of the extension, 4.x the address.
            found.append((unit.tags_code if opened.case.is_5x else address, line))
    wanted = [(line["tagsCode"], line["ext"]) for line in opened.case.messages if "ext" in line]
    assert found == wanted
    assert bool(wanted) == opened.case.name.endswith("-ext")


def test_compressed_bodies_are_inflated(opened):
    wanted = [line.get("inflated", line["body"]) for line in opened.case.messages]
    assert [message.body for _, _, message in opened.messages] == [*map(b64decode, wanted)]


def test_bounds_are_the_expected_ones(opened):
    view = opened.view
    assert {
        (key.topic, key.queue_id): (queue.min_offset, queue.max_offset)
        for key, queue in view.queues.items()
    } == opened.case.bounds
    assert (view.min_offset, view.max_offset) == opened.case.log_bounds


def test_bounds_are_what_a_start_recovers_to(opened):
    recovered = opened.case.recovered
    if recovered is None:
        assert not opened.case.manifest["abort_file"], "an unclean case without its recovery"
        return
    assert recovered["load"]
    assert opened.view.traits.is_clean is not recovered["abort"]
    assert (opened.view.min_offset, opened.view.max_offset) == (
        recovered["commitLogMin"],
        recovered["commitLogMax"],
    )
    assert {
        key: (queue.min_offset, queue.max_offset) for key, queue in opened.view.queues.items()
    } == {
        QueueKey(line["topic"], line["queueId"]): (line["minOffset"], line["maxOffset"])
        for line in recovered["queues"]
    }


def test_damage_is_told_where_good_records_are_cut_off(opened):
    _ = opened.messages
    found = [finding.reason for finding in opened.view.damage.findings]
    if opened.case.name.endswith("-unclean-crc"):
        (reason,) = found
        assert reason.startswith("a record does not have its checksum; the log is cut here")
    else:
        assert found == []


def test_expired_messages_are_no_damage(open_case):
    opened = open_case("v4-expired")
    key = QueueKey("EarlyTopic", 0)
    gone = [
        (int(place["queue_offset"]), int(place["physical_offset"]), int(place["size"]))
        for place in opened.view.queues[key].units(0, 100)
    ]
    assert gone == [
        (line["queueOffset"], line["physicalOffset"], line["storeSize"])
        for line in opened.case.missing
    ]
    assert len(gone) == 20
    assert list(opened.view.messages(key)) == []


# --- puts ------------------------------------------------------------------------------------


def test_each_put_lies_where_it_was_written(opened):
    view = opened.view
    at = {record.physical_offset: record for record in opened.records}
    count = 0
    for put in opened.case.puts:
        if put.get("status") != "PUT_OK":
            continue
        offset, end = put["wroteOffset"], put["wroteOffset"] + put["wroteBytes"]
        if offset < view.min_offset or end > view.max_offset:
            assert offset not in at, f"put {put['put']} is expired or cut off"
            continue
        if put["msgNum"] == 1:  # a batch of 4.6 answers with a later time than it writes
            assert at[offset].store_timestamp == put["storeTimestamp"]
        assert at[offset].queue_offset == put["logicsOffset"]
        # 5.x gives the ids of a whole batch, separated by commas.
        assert at[offset].msg_id == put["msgId"].split(",")[0]
        while offset < end:
            offset += at[offset].store_size
            count += 1
        assert offset == end, f"put {put['put']} is not whole records"
    assert count


def test_refused_puts_left_no_record(opened):
    puts = [put for put in opened.case.puts if "wroteOffset" in put]
    if not opened.case.spec.get("broker"):
        # Nobody else wrote: what lies in the log is what was put, and nothing between.
        view = opened.view
        held = [
            (put["wroteOffset"], put["wroteOffset"] + put["wroteBytes"])
            for put in puts
            if put["wroteOffset"] >= view.min_offset
        ]
        for record in opened.records:
            end = record.physical_offset + record.store_size
            assert any(low <= record.physical_offset and end <= high for low, high in held)
    items = [item for item in opened.case.spec["messages"] if "pause" not in item]
    refused = {put["put"] for put in opened.case.puts if put.get("status", "PUT_OK") != "PUT_OK"}
    bodies = {record.stored_body for record in opened.records}
    for number in refused:
        body = items[number].get("body")
        if isinstance(body, str) and body:
            assert body.encode() not in bodies, f"put {number} was refused and is stored"


@pytest.mark.parametrize("name", ["v4-basic", "v46-basic", "v5-basic", "v5-timer"])
def test_cases_with_refused_puts_have_some(open_case, name):
    states = {put.get("status", "PUT_OK") for put in open_case(name).case.puts}
    assert states > {"PUT_OK"}


@pytest.mark.parametrize("name", ["v4-transaction", "v5-transaction"])
def test_old_style_transaction_records_are_in_the_log_only(open_case, name):
    opened = open_case(name)
    old = {
        TransactionType[item["transaction"].upper()]: put["wroteOffset"]
        for item, put in zip(opened.case.spec["messages"], opened.case.puts, strict=True)
        if item.get("raw") and "transaction" in item
    }
    assert set(old) == {TransactionType.PREPARED, TransactionType.COMMIT, TransactionType.ROLLBACK}
    queued = {message.physical_offset for _, _, message in opened.messages}
    in_log = {record.physical_offset: record for record in opened.records}
    for kind, offset in old.items():
        assert transaction_type(in_log[offset].sys_flag) is kind
        assert (offset in queued) == (kind is TransactionType.COMMIT)
        message = opened.view.message_at(offset)
        assert message is not None
        assert message.stored_body.decode() == f"old style {kind.name.lower()}"
