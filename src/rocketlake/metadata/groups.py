"""subscriptionGroup.json: the consumer groups of a broker.

    {"dataVersion": {...}, "forbiddenTable": {group: {topic: bits}},
     "subscriptionGroupTable": {name: {"groupName": name, "retryMaxTimes": 16, ...}}}

4.x has no `forbiddenTable` and only the first nine members of a group.
"""

from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import table
from rocketlake.metadata.table import DataVersion

FILE_NAME: Final = "subscriptionGroup.json"


class RetryPolicyType(StrEnum):
    """How the time until the next delivery grows."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetry(Struct, frozen=True):
    """Delays that grow by a factor, in milliseconds."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


class CustomizedRetry(Struct, frozen=True):
    """Delays one by one, in milliseconds; none means those of the delay levels."""

    next: list[int] = []


class RetryPolicy(Struct, frozen=True, rename="camel"):
    """When a message that failed is delivered again."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential: ExponentialRetry | None = field(default=None, name="exponentialRetryPolicy")
    customized: CustomizedRetry | None = field(default=None, name="customizedRetryPolicy")


class GroupSubscription(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a group is allowed to subscribe to."""

    topic: str
    expression: str | None = None
    expression_type: str | None = None
    version: int = 0


class SubscriptionGroup(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the broker keeps about a group; defaults are those of the reference's class."""

    name: str = field(name="groupName")
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_count: int = field(default=1, name="retryQueueNums")
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True

    # --- since 5.0 ---
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    retry_policy: RetryPolicy = field(default=RetryPolicy(), name="groupRetryPolicy")
    sys_flag: int = field(default=0, name="groupSysFlag")
    subscriptions: list[GroupSubscription] = field(default_factory=list, name="subscriptionDataSet")
    attributes: dict[str, str] = {}


class GroupTable(Struct, frozen=True):
    """Groups by name, in the order of the file, and what some must not do with a topic."""

    groups: dict[str, SubscriptionGroup] = {}
    forbidden: dict[str, dict[str, int]] = {}
    version: DataVersion | None = None


def load(config_dir: Path) -> GroupTable:
    """Read subscriptionGroup.json or its backup; an empty table if there is neither.

    Raises:
        StoreError: Neither of the files that are there can be used.
    """
    return table.load(config_dir / FILE_NAME, decode, GroupTable())


def decode(value: JsonObject) -> GroupTable:
    """Turn the JSON of subscriptionGroup.json into a table.

    Raises:
        ValueError: A member is of the wrong type; says which one.
    """
    groups = {
        # Compat: the broker looks a group up by its key; the name inside is only shown.
        name: table.convert({"groupName": name, **members}, SubscriptionGroup, where)
        for name, where, members in table.get_entries(value, "subscriptionGroupTable")
    }
    forbidden = {
        name: table.convert(members, dict[str, int], where)
        for name, where, members in table.get_entries(value, "forbiddenTable")
    }
    return GroupTable(groups, forbidden, table.decode_version(value))
