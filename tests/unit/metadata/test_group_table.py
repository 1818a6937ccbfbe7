from pathlib import Path

import pytest

from rocketlake.metadata import groups
from rocketlake.metadata.groups import (
    CustomizedRetry,
    ExponentialRetry,
    GroupSubscription,
    RetryPolicy,
    RetryPolicyType,
    SubscriptionGroup,
)

TABLES = Path(__file__).parent / "tables"


def test_table_of_5x_is_read():
    table = groups.load(TABLES / "v5-config")
    assert len(table.groups) == 11
    assert table.groups["CG_1"] == SubscriptionGroup(name="CG_1")
    assert table.groups["CG_2"] == SubscriptionGroup(
        name="CG_2", retry_max_times=3, retry_queue_count=2
    )
    assert table.forbidden == {}
    assert table.version is not None
    assert table.version.counter == 3


def test_table_of_4x_is_read():
    table = groups.load(TABLES / "v4-config")
    assert len(table.groups) == 10
    assert table.groups["组"] == SubscriptionGroup(name="组")
    assert table.groups["CG_2"].retry_max_times == 3


def test_policies_and_subscriptions_are_read():
    table = groups.load(TABLES / "classes")
    rich = table.groups["rich"]
    assert rich.consume_message_orderly
    assert rich.retry_policy == RetryPolicy(
        RetryPolicyType.EXPONENTIAL, exponential=ExponentialRetry(5000, 7200000, 2)
    )
    assert rich.subscriptions == [
        GroupSubscription(topic="TopicTest", expression="a || b", expression_type="TAG", version=1),
        GroupSubscription(topic="Sql", expression="x > 'y'", expression_type="SQL92", version=2),
    ]
    assert rich.attributes == {"priority.factor.mode": "order"}
    assert table.groups["custom"].retry_policy.customized == CustomizedRetry([1000, 5000])
    assert table.groups["plain"] == SubscriptionGroup(name="plain")


def test_forbidden_topics_are_read():
    table = groups.decode({"forbiddenTable": {"G": {"T": 3}}})
    assert table.forbidden == {"G": {"T": 3}}
    assert table.groups == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"subscriptionGroupTable": {"G": {"retryMaxTimes": "x"}}},
            "subscriptionGroupTable['G'].retryMaxTimes: Expected `int`, got `str`",
        ),
        (
            {"subscriptionGroupTable": {"G": {"groupRetryPolicy": {"type": 1}}}},
            "subscriptionGroupTable['G'].groupRetryPolicy.type: Expected `str`, got `int`",
        ),
        (
            {"forbiddenTable": {"G": {"T": "x"}}},
            "forbiddenTable['G'][...]: Expected `int`, got `str`",
        ),
    ],
)
def test_wrong_type_is_refused_by_the_name_of_the_member(value, message):
    with pytest.raises(ValueError, match="Expected") as caught:
        groups.decode(value)
    assert str(caught.value) == message


def test_missing_files_give_an_empty_table(tmp_path):
    assert groups.load(tmp_path) == groups.GroupTable()
