import pytest

from rocketlake.files.json_file import load_table
from rocketlake.metadata import groups
from rocketlake.metadata.groups import (
    ExponentialRetry,
    GroupBook,
    GroupSubscription,
    RetryPolicy,
    RetryPolicyType,
    SubscriptionGroup,
)

CASES = ["v5-config", "v4-config"]


@pytest.mark.parametrize("case", CASES)
def test_file_of_the_reference_loses_nothing(copy_of, case):
    place = copy_of(case)
    path = place.config_dir / groups.FILE_NAME
    before = load_table(path).value
    book = GroupBook.load(place)
    book.create(SubscriptionGroup(name="new"))
    book.persist()
    after = load_table(path).value
    new = after["subscriptionGroupTable"].pop("new")
    assert after.pop("dataVersion")["counter"] == before.pop("dataVersion")["counter"] + 1
    assert after == before
    assert list(after) == list(before)
    assert list(new) == list(before["subscriptionGroupTable"]["CG_1"])
    assert new | {"groupName": "CG_1"} == before["subscriptionGroupTable"]["CG_1"]


@pytest.mark.parametrize("case", CASES)
def test_bytes_of_all_groups_stay(copy_of, case):
    place = copy_of(case)
    path = place.config_dir / groups.FILE_NAME
    before = path.read_bytes()
    book = GroupBook.load(place)
    book.create(SubscriptionGroup(name="new"))
    book.delete("new")
    book.persist()
    at = before.index(b'"subscriptionGroupTable"')
    assert path.read_bytes().endswith(before[at:])


def test_changed_group_is_read_back(copy_of):
    place = copy_of("v5-config")
    book = GroupBook.load(place)
    changed = SubscriptionGroup(
        name="CG_1",
        retry_max_times=5,
        consume_message_orderly=True,
        retry_policy=RetryPolicy(RetryPolicyType.EXPONENTIAL, ExponentialRetry(1, 2, 3)),
        subscriptions=[GroupSubscription(topic="T", expression="a", expression_type="TAG")],
        attributes={"a": "b"},
    )
    book.update(changed)
    book.persist()
    assert groups.load(place.config_dir).groups["CG_1"] == changed
    assert GroupBook.load(place).get("CG_1") == changed


def test_create_returns_the_group_that_is_there(place):
    book = GroupBook.load(place)
    first = book.create(SubscriptionGroup(name="g", retry_max_times=1))
    assert book.create(SubscriptionGroup(name="g")) is first
    assert book.groups() == [first]
    assert book.version.counter == 1


def test_forbidden_bits_are_set_kept_and_removed(place):
    book = GroupBook.load(place)
    book.create(SubscriptionGroup(name="g"))
    book.forbid("g", "T", 2)
    book.forbid("g", "U", 1)
    book.forbid("h", "T", 4)
    book.forbid("h", "T", 0)
    book.persist()
    loaded = GroupBook.load(place)
    assert loaded.forbidden("g", "T") == 2
    assert loaded.forbidden("h", "T") == 0
    assert load_table(book.path).value["forbiddenTable"] == {"g": {"T": 2, "U": 1}}
    assert loaded.delete("g")
    assert not loaded.delete("g")
    loaded.persist()
    assert load_table(book.path).value["forbiddenTable"] == {}
