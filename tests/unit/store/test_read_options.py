"""Options of a reader: delay levels, and the reference's keys."""

import pytest

from rocketlake import config
from rocketlake.errors import ConfigError
from rocketlake.store.options import ReadOptions, parse_delay_levels
from rocketlake.store.options.delay_levels import delay_of


def test_default_levels():
    options = ReadOptions()
    wanted = {1: 1_000, 2: 5_000, 5: 60_000, 14: 600_000, 17: 3_600_000, 18: 7_200_000}
    assert {level: delay_of(options.delay_levels_ms, level) for level in wanted} == wanted
    assert delay_of(options.delay_levels_ms, 1000) == 7_200_000


def test_levels_may_have_any_unit():
    assert parse_delay_levels("1s 2m 3h 4d") == [1_000, 120_000, 10_800_000, 345_600_000]
    assert parse_delay_levels("") == []
    assert delay_of(ReadOptions(message_delay_level="").delay_levels_ms, 3) == 1000


@pytest.mark.parametrize("text", ["5", "s", "5x", "-5s", "1.5s", "5 s", "²s"])
def test_broken_levels_are_refused(text):
    with pytest.raises(ValueError, match="messageDelayLevel has"):
        parse_delay_levels(text)


def test_keys_are_those_of_the_reference():
    (options,) = config.load(
        {
            "mappedFileSizeCommitLog": "65536",
            "mapperFileSizeBatchConsumeQueue": 4600,
            "checkCRCOnRecover": "false",
            "enabledAppendPropCRC": True,
            "maxHashSlotNum": 100,
        },
        ReadOptions,
    )
    assert options.mapped_file_size_commit_log == 65536
    assert options.mapper_file_size_batch_consume_queue == 4600
    assert not options.check_crc_on_recover
    assert options.enabled_append_prop_crc
    assert options.max_hash_slot_num == 100


@pytest.mark.parametrize("value", [0, -1, "x"])
def test_sizes_must_be_positive(value):
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog"):
        config.load({"mappedFileSizeCommitLog": value}, ReadOptions)
