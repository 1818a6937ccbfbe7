"""subscriptionGroup.json: groups that consume are in it, as a broker would have them."""

import json
from pathlib import Path

import rocketlake
from rocketlake import Message
from rocketlake.metadata import groups
from rocketlake.metadata.groups import SubscriptionGroup


def table(root: Path) -> dict:
    return json.loads((root / "config" / "subscriptionGroup.json").read_text())


def test_group_that_consumes_is_in_the_table(tmp_path: Path):
    root = tmp_path / "store"
    with rocketlake.open_store(root) as store:
        store.put(Message(topic="T", body=b"a"))
        assert [m.body for m in store.consumer("g", "T", timeout=0)] == [b"a"]
    assert groups.load(root / "config").groups == {"g": SubscriptionGroup(name="g")}
    found = table(root)
    assert found["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 16
    assert found["dataVersion"]["counter"] == 1


def test_settings_of_a_group_stay(tmp_path: Path):
    root = tmp_path / "store"
    with rocketlake.open_store(root) as store:
        store.consumer("g", "T", timeout=0)
    found = table(root)
    found["subscriptionGroupTable"]["g"]["retryMaxTimes"] = 3
    (root / "config" / "subscriptionGroup.json").write_text(json.dumps(found))
    before = (root / "config" / "subscriptionGroup.json").read_bytes()
    with rocketlake.open_store(root) as store:
        store.consumer("g", "T", timeout=0)
    assert (root / "config" / "subscriptionGroup.json").read_bytes() == before


def test_store_that_nobody_consumes_has_no_table(tmp_path: Path):
    with rocketlake.open_store(tmp_path / "store") as store:
        store.put(Message(topic="T", body=b"a"))
    assert not (tmp_path / "store" / "config" / "subscriptionGroup.json").exists()
