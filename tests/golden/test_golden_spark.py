"""Spark reads exactly the messages that RocketMQ reads, of every golden store."""

import json
from base64 import b64encode
from collections import Counter
from typing import Any

import pytest

from support.golden import Golden
from support.spark_reading import read_rows, read_table

NAMES = {
    "topic": "topic",
    "queue_id": "queueId",
    "physical_offset": "physicalOffset",
    "store_size": "storeSize",
    "born_host": "bornHost",
    "store_host": "storeHost",
    "msg_id": "msgId",
    "flag": "flag",
    "sys_flag": "sysFlag",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
}


def as_line(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: row[column] for column, name in NAMES.items()},
        "queueOffset": row["queue_offset"],
        "storeTimestamp": _ms(row["store_timestamp"]),
        "bornTimestamp": _ms(row["born_timestamp"]),
        "properties": dict(row["properties"]),
        "body": b64encode(row["body"]).decode(),
    }


def _ms(moment: Any) -> int:
    return round(moment.timestamp() * 1000)


def _sorted(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(lines, key=lambda line: json.dumps(line, sort_keys=True))


def wanted_of(golden: Golden) -> list[dict[str, Any]]:
    unit_keys = {"tagsCode", "ext", "cqOffset", "batchNum", "inflated", "bodyCRC"}
    lines = []
    for line in golden.case.messages:
        kept = {name: value for name, value in line.items() if name not in unit_keys}
        kept["queueOffset"] = line.get("cqOffset", line["queueOffset"])
        lines.append(kept)
    return lines


@pytest.mark.parametrize("cut", [{}, {"minPartitions": 7}])
def test_messages_are_the_expected_ones(golden: Golden, cut: dict[str, Any]) -> None:
    rows = read_rows(golden.root, topicPattern=".*", rawBody=True, onDamage="asRecovered", **cut)
    found = _sorted([as_line(row) for row in rows])
    wanted = _sorted(wanted_of(golden))
    assert found == wanted


def test_units_are_the_expected_ones(golden: Golden) -> None:
    rows = read_table(
        golden.root, table="queue", onDamage="asRecovered", minPartitions=3
    ).to_pylist()
    bounds = {key: bound for key, bound in golden.case.bounds.items() if bound[0] < bound[1]}
    found: dict[tuple[str, int], set[int]] = {}
    for row in rows:
        offsets = range(row["queue_offset"], row["queue_offset"] + row["batch_size"])
        found.setdefault((row["topic"], row["queue_id"]), set()).update(offsets)
    assert {key: (min(o), max(o) + 1) for key, o in found.items()} == bounds


def test_skip_reads_what_a_start_would_leave_and_what_lies_behind(golden: Golden) -> None:
    columns = ("topic", "queue_id", "queue_offset", "physical_offset")
    found = {
        how: Counter(
            tuple(row.values())
            for row in read_table(golden.root, columns, topicPattern=".*", onDamage=how).to_pylist()
        )
        for how in ("skip", "asRecovered")
    }
    assert not found["asRecovered"] - found["skip"]
    assert set((found["skip"] - found["asRecovered"]).values()) <= {1}
    is_cut = golden.case.name.endswith("unclean-crc")
    assert (found["skip"] != found["asRecovered"]) == is_cut
