"""Options of a store: defaults of the reference, sources and their strength, what is refused."""

import importlib
import json
import logging
import pickle
import re
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import fields

from rocketlake import config
from rocketlake.errors import ConfigError
from rocketlake.format import layout
from rocketlake.known_keys import KNOWN_KEYS
from rocketlake.model.endpoint import Endpoint
from rocketlake.store.options import (
    FILE_SHAPE,
    BrokerRole,
    Choice,
    CompatVersion,
    FlushMode,
    ReadOptions,
    StoreOptions,
    embedded,
    keeping,
)

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = json.loads((Path(__file__).parent / "reference_defaults.json").read_text())
RELEASES = {"5.5": "5.5.0", "5.3": "5.3.3", "4.9": "4.9.7", "4.6": "4.6.0"}

OWN = {
    *("compatVersion", "storeHost", "autoDeleteEnable", "diskRatioEnable"),
    *("diskFreeCleanBytes", "diskFreeRefuseBytes", "mappedFileClass"),
}
OF_THE_MACHINE = {"storePathRootDir", "storePathCommitLog"}  # unset: below the directory opened


def reference_defaults(release: str) -> dict[str, object]:
    """The defaults of a release: those of 5.3.3, less what it lacks, and what differs or is new."""
    defaults: dict[str, object] = {}
    for name, values in REFERENCE["5.3.3"].items():
        change = REFERENCE[release].get(name, {}) if release != "5.3.3" else {}
        lacks = change.get("lacks", ())
        defaults |= {key: value for key, value in values.items() if key not in lacks}
        defaults |= change.get("differs", {}) | change.get("adds", {})
    return defaults


# --- defaults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", list(CompatVersion))
def test_defaults_of_each_release_are_those_of_its_packages(version):
    reference = reference_defaults(RELEASES[version])
    options = StoreOptions.from_source(compat_version=version)
    ours = {info.encode_name: getattr(options, info.name) for info in fields(options)}
    shared = {key: ours[key] for key in ours if key in reference}
    assert len(shared) > 60
    assert shared == {key: reference[key] for key in shared}


def test_defaults_cover_every_key_but_named_ones():
    reference = reference_defaults("5.5.0")
    missing = {info.encode_name for info in fields(StoreOptions)} - set(reference)
    assert missing == OWN | OF_THE_MACHINE


def test_keys_are_known_to_the_reference():
    assert {info.encode_name for info in fields(StoreOptions)} - KNOWN_KEYS == OWN


@pytest.mark.parametrize("version", [CompatVersion.V4_6, CompatVersion.V4_9])
def test_older_releases_have_no_parts_of_5x(version):
    options = StoreOptions.from_source(compat_version=version)
    assert not options.auto_message_version_on_topic_len
    assert not options.timer_wheel_enable
    assert options.warnings() == ()


def test_compat_version_older_defaults_yield_to_what_is_said():
    options = StoreOptions.from_source(
        {"compatVersion": 4.6, "flushCommitLogTimed": "true"}, timer_wheel_enable=True
    )
    assert options.flush_commit_log_timed
    assert options.timer_wheel_enable
    assert not options.use_reentrant_lock_when_put_message


def test_compat_versions_are_ordered():
    versions = list(CompatVersion)
    assert sorted(versions) == versions
    assert [version.is_4x for version in versions] == [True, True, False, False]
    assert [version.indexes_tags for version in versions] == [False, False, False, True]
    assert [version.keeps_queue_offset for version in versions] == [False, False, False, True]


# --- sources --------------------------------------------------------------------------------------


def test_from_source_reads_a_broker_conf(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("flushDiskType = SYNC_FLUSH\nmappedFileSizeCommitLog=65536\ndeleteWhen=04;16\n")
    options = StoreOptions.from_source(path)
    assert options.flush_disk_type is FlushMode.SYNC_FLUSH
    assert options.mapped_file_size_commit_log == 65536
    assert options.delete_hours == {4, 16}


def test_from_source_reads_json_and_mappings():
    wanted = StoreOptions.from_source({"maxMessageSize": 10})
    assert StoreOptions.from_source('{"maxMessageSize": "10"}') == wanted
    assert StoreOptions.from_source(max_message_size=10) == wanted
    assert StoreOptions.from_source() == StoreOptions()


def test_from_source_strength_is_keyword_source_preset_default():
    options = StoreOptions.from_source(
        {"maxHashSlotNum": 2, "maxIndexNum": 2},
        preset={"max_hash_slot_num": 3, "max_index_num": 3, "max_message_size": 3},
        max_index_num=4,
    )
    assert (options.max_hash_slot_num, options.max_index_num) == (2, 4)
    assert (options.max_message_size, options.file_reserved_time) == (3, 72)


def test_from_source_keywords_are_converted():
    options = StoreOptions.from_source(
        flush_disk_type="SYNC_FLUSH",
        broker_role=BrokerRole.SLAVE,
        store_path_commit_log=Path("a"),
        check_crc_on_recover="false",
        mapped_file_size_commit_log="1000",
        compat_version=4.9,
    )
    assert options.flush_disk_type is FlushMode.SYNC_FLUSH
    assert options.broker_role is BrokerRole.SLAVE
    assert options.store_path_commit_log == "a"
    assert not options.check_crc_on_recover
    assert options.mapped_file_size_commit_log == 1000
    assert options.compat_version is CompatVersion.V4_9


@pytest.mark.parametrize(
    ("keyword", "nearest"),
    [
        ("max_mesage_size", "max_message_size"),
        ("maxMessageSize", "max_message_size"),
        ("flush_disk_typ", "flush_disk_type"),
        ("check_c_r_c_on_recover", "check_crc_on_recover"),
        ("ha_listen_prt", "ha_listen_port"),
    ],
)
def test_from_source_unknown_keyword_is_refused_with_the_nearest(keyword, nearest):
    with pytest.raises(ConfigError) as caught:
        StoreOptions.from_source(**{keyword: 1})
    assert str(caught.value) == f"unknown option {keyword!r}; did you mean {nearest!r}?"


def test_from_source_unknown_keyword_like_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"^unknown option 'qqq'$"):
        StoreOptions.from_source(qqq=1)


def test_from_source_unknown_key_is_refused(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("maxMesageSize=1\n")
    with pytest.raises(ConfigError, match=r"broker\.conf: unknown option 'maxMesageSize'; did you"):
        StoreOptions.from_source(path)


def test_from_source_known_but_unused_keys_are_accepted_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        options = StoreOptions.from_source({"haListenPort": 1}, d_leger_group="g", use_tls=False)
    assert options == StoreOptions()
    keys = re.findall(r"key=(\w+)", caplog.text)
    assert keys == ["haListenPort", "dLegerGroup", "useTLS"]


def test_from_source_wrong_value_names_file_and_choices(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("flushDiskType = NEVER\n")
    with pytest.raises(ConfigError, match=r"broker\.conf: flushDiskType = 'NEVER'.*SYNC_FLUSH"):
        StoreOptions.from_source(path)


def test_from_source_keywords_may_mend_what_a_source_contradicts():
    source = {"mappedFileSizeCommitLog": 1}
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog = 1"):
        StoreOptions.from_source(source)
    options = StoreOptions.from_source(source, mapped_file_size_commit_log=4096)
    assert options.mapped_file_size_commit_log == 4096


@pytest.mark.parametrize(
    "case",
    sorted((ROOT / "tests/golden/data").glob("*/manifest.toml")),
    ids=lambda path: path.parent.name,
)
def test_from_source_takes_the_options_of_every_golden_case(case):
    manifest = tomllib.loads(case.read_text())
    options = StoreOptions.from_source(
        manifest["options"], compat_version=manifest["rocketmq"].rpartition(".")[0]
    )
    given = manifest["options"]
    assert {key: value for key, value in msgspec.to_builtins(options).items() if key in given} == (
        given
    )


# --- choices --------------------------------------------------------------------------------------


def test_choice_has_only_what_was_said():
    assert StoreOptions.choose({"maxIndexNum": "7"}, file_reserved_time=1).values == {
        "max_index_num": 7,
        "file_reserved_time": 1,
    }
    assert StoreOptions.choose() == Choice({})


def test_choice_completed_takes_the_sizes_of_the_files():
    found = {"mapped_file_size_commit_log": 4096, "max_index_num": 40}
    options = StoreOptions.complete(StoreOptions.choose(max_index_num=40), found, embedded())
    assert options.mapped_file_size_commit_log == 4096
    assert options.max_index_num == 40
    assert options.max_hash_slot_num == embedded()["max_hash_slot_num"]


def test_choice_of_other_sizes_is_refused_with_both_values():
    found = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 400}
    choice = StoreOptions.choose({"mappedFileSizeCommitLog": 8192})
    options = StoreOptions.complete(choice, found)
    with pytest.raises(ConfigError) as caught:
        choice.check_agrees(options, found, where="data/store")
    message = "data/store has mappedFileSizeCommitLog = 4096, asked for 8192"
    assert str(caught.value) == message


def test_choice_that_rounds_to_the_sizes_of_the_files_agrees():
    found = {"mapped_file_size_consume_queue": 400}
    choice = StoreOptions.choose(mapped_file_size_consume_queue=390)
    choice.check_agrees(StoreOptions.complete(choice, found), found, where="data/store")


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "effective"),
    [
        ("mapped_file_size_consume_queue", 6_000_001, 6_000_020),
        ("mapped_file_size_consume_queue", 1, 20),
        ("mapper_file_size_batch_consume_queue", 47, 92),
        ("disk_max_used_space_ratio", 5, 10),
        ("disk_max_used_space_ratio", 99, 95),
        ("disk_space_warning_level_ratio", 99, 90),
        ("disk_space_warning_level_ratio", 1, 35),
        ("disk_space_clean_forcibly_ratio", 86, 85),
        ("disk_space_clean_forcibly_ratio", 1, 30),
        ("timer_precision_ms", 1, 100),
        ("timer_precision_ms", 499, 200),
        ("timer_precision_ms", 500, 500),
        ("timer_precision_ms", 5000, 1000),
    ],
)
def test_values_are_those_the_reference_works_with(name, given, effective):
    assert getattr(StoreOptions(**{name: given}), name) == effective
    assert getattr(StoreOptions.from_source(**{name: given}), name) == effective


def test_rocksdb_queues_in_a_broker_conf_are_refused_with_the_way_out(tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\n")
    with pytest.raises(ConfigError) as caught:
        StoreOptions.from_source(conf)
    words = str(caught.value)
    assert words.startswith(f"{conf}: storeType = defaultRocksDB")
    for way_out in ("set storeType to default", "read_only=True", "rocketlake rebuild STORE --to"):
        assert way_out in words
    with pytest.raises(ConfigError, match=r"broker\.conf and keyword arguments: storeType"):
        StoreOptions.from_source(conf, compat_version="5.3")
    # What only reads needs no queues of its own kind.
    assert ReadOptions.of(StoreOptions.choose(conf)) == ReadOptions()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storeType": "defaultRocksDB"}, "storeType = defaultRocksDB: RocketLake writes consume"),
        ({"mappedFileSizeCommitLog": 98}, "mappedFileSizeCommitLog = 98: the smallest record"),
        ({"maxIndexNum": 1}, "maxIndexNum = 1: the first entry"),
        ({"messageDelayLevel": "1s x"}, "messageDelayLevel has 'x'"),
        ({"deleteWhen": "24"}, "deleteWhen = '24': '24' is no hour"),
        ({"deleteWhen": "04;"}, "deleteWhen = '04;': '' is no hour"),
        ({"storeHost": "localhost"}, "storeHost = 'localhost': not a host and port"),
        ({"mappedFileSizeCommitLog": 1 << 31}, "mappedFileSizeCommitLog = 2147483648"),
        ({"maxErrorRateOfBloomFilter": 100}, "maxErrorRateOfBloomFilter = 100"),
        ({"compatVersion": "5.0"}, "compatVersion = '5.0'.*expected one of 4.6, 4.9, 5.3"),
        ({"flushIntervalCommitLog": 0}, "flushIntervalCommitLog = 0"),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        StoreOptions.from_source(options)
    with pytest.raises(ConfigError, match=message):
        config.load(options, StoreOptions)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"mappedFileSizeCommitLog": 4 << 20}, "mappedFileSizeCommitLog: a file has room for"),
        ({"readOnlyCommitLogStorePaths": "a", "storePathCommitLog": "b"}, "readOnlyCommitLog"),
        ({"forceVerifyPropCRC": True}, "forceVerifyPropCRC"),
        (
            {"diskSpaceWarningLevelRatio": 50, "diskSpaceCleanForciblyRatio": 60},
            "diskSpaceCleanForciblyRatio",
        ),
        ({"diskFreeCleanBytes": 5, "diskFreeRefuseBytes": 6}, "diskFreeCleanBytes: below"),
        ({"fileReservedTime": 71}, "fileReservedTime: a message may be delayed by 72 hours"),
        ({"transientStorePoolEnable": True, "brokerRole": "SLAVE"}, "transientStorePoolEnable"),
        ({"transientStorePoolEnable": True, "flushDiskType": "SYNC_FLUSH"}, "transientStorePool"),
        ({"fastFailIfNoBufferInStorePool": True}, "fastFailIfNoBufferInStorePool"),
        ({"brokerRole": "SYNC_MASTER"}, "inSyncReplicas: 1 is this store alone"),
        ({"inSyncReplicas": 2}, "inSyncReplicas: not between"),
        ({"enableLmq": True}, "enableLmq, enableMultiDispatch"),
        ({"enableCalcFilterBitMap": True}, "enableCalcFilterBitMap"),
        ({"compatVersion": "4.9", "timerWheelEnable": True}, "timerWheelEnable: 4.9 has no"),
        ({"compatVersion": "4.9", "autoMessageVersionOnTopicLen": True}, "autoMessageVersion"),
    ],
)
def test_what_is_doubtful_is_said(options, key):
    (warning,) = StoreOptions.from_source(options).warnings()
    assert warning.startswith(key)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"readOnlyCommitLogStorePaths": "a", "storePathCommitLog": "b,"},
        {"enableLmq": True, "enableMultiDispatch": True},
        {"fileReservedTime": 1, "autoDeleteEnable": False},
        {"fileReservedTime": 1, "timerWheelEnable": False},
        {"brokerRole": "SYNC_MASTER", "compatVersion": "4.6"},
        {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "totalReplicas": 3},
    ],
)
def test_what_is_not_doubtful_is_not_said(options):
    assert StoreOptions.from_source(options).warnings() == ()


@pytest.mark.parametrize(
    ("options", "uses"),
    [
        ({}, False),
        ({"transientStorePoolEnable": True}, True),
        ({"transientStorePoolEnable": True, "flushDiskType": "SYNC_FLUSH"}, True),
        (
            {
                "transientStorePoolEnable": True,
                "flushDiskType": "SYNC_FLUSH",
                "compatVersion": "4.9",
            },
            False,
        ),
        ({"transientStorePoolEnable": True, "brokerRole": "SLAVE"}, False),
        ({"transientStorePoolEnable": True, "writeWithoutMmap": True}, False),
    ],
)
def test_write_buffers_only_where_the_reference_has_them(options, uses):
    assert StoreOptions.from_source(options).uses_write_buffers is uses


def test_record_size_max_follows_the_release():
    assert StoreOptions().record_size_max == (4 << 20) + 65536
    assert StoreOptions(compat_version=CompatVersion.V4_6).record_size_max == 4 << 20
    assert StoreOptions(max_message_size=layout.MAX_I32).record_size_max == layout.MAX_I32


def test_parsed_values():
    options = StoreOptions.from_source(
        store_host="[2001:db8::1]:99",
        message_store_plug_in=" a.B , c.D,",
        message_delay_level="1s 1m",
    )
    assert options.store_endpoint == Endpoint.parse("[2001:db8::1]:99")
    assert options.plug_ins == ("a.B", "c.D")
    assert options.delay_levels_ms == (1000, 60_000)
    assert StoreOptions().plug_ins == ()
    assert len(StoreOptions().delay_levels_ms) == 18


def test_options_are_values():
    options = StoreOptions.from_source(max_index_num=40)
    assert pickle.loads(pickle.dumps(options)) == options
    assert msgspec.convert(msgspec.to_builtins(options), StoreOptions) == options
    with pytest.raises(AttributeError):
        options.max_index_num = 50


# --- embedded preset ------------------------------------------------------------------------------


def test_embedded_preset_shapes_every_file_and_topics_made_by_a_put():
    assert set(embedded()) == {*FILE_SHAPE, "default_topic_queue_nums"}


def test_embedded_preset_raises_no_doubts():
    assert StoreOptions.from_source(preset=embedded()).warnings() == ()


def test_embedded_preset_has_whole_units():
    options = StoreOptions.from_source(preset=embedded())
    assert {name: getattr(options, name) for name in embedded()} == embedded()


def test_embedded_preset_keeps_ten_thousand_queues_affordable():
    block = 4096
    blocks = -(-StoreOptions(**embedded()).mapped_file_size_consume_queue // block)
    assert 10_000 * blocks * block <= 256 << 20


def test_embedded_preset_is_not_shared():
    embedded().clear()
    assert embedded()


# --- what a program did not ask for ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "is_automatic", "by_ratio"),
    [
        ([], False, False),
        (["flush_disk_type", "disk_free_refuse_bytes"], False, False),
        (["file_reserved_time"], True, False),
        (["delete_when"], True, False),
        (["disk_free_clean_bytes"], True, False),
        (["disk_max_used_space_ratio"], True, True),
        (["file_reserved_time", "disk_space_warning_level_ratio"], True, True),
    ],
)
def test_program_that_names_no_rule_keeps_all(chosen, is_automatic, by_ratio):
    options = StoreOptions.from_source(preset=keeping(chosen))
    assert (options.auto_delete_enable, options.disk_ratio_enable) == (is_automatic, by_ratio)
    assert options.delete_hours == frozenset(range(24))
    assert options.disk_free_refuse_bytes == 16 << 20
    assert options.warnings() == ()


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture
def page_maker(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    monkeypatch.delitem(sys.modules, "make_options_page", raising=False)
    yield importlib.import_module("make_options_page")
    sys.modules.pop("make_options_page", None)


def test_page_is_current(page_maker):
    written = page_maker.PAGE.read_text(encoding="utf-8")
    assert written == page_maker.render(), "run tools/make_options_page.py"


def test_page_has_every_option_once_with_a_meaning(page_maker):
    groups = list(page_maker.groups())
    names = [name for group in groups for name in group.meanings]
    assert names == [info.name for info in fields(StoreOptions)]
    assert all(meaning.endswith(".") for group in groups for meaning in group.meanings.values())


def test_page_maker_check_tells(page_maker, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(page_maker, "PAGE", tmp_path / "operations" / "options.md")
    monkeypatch.setattr(sys, "argv", ["make_options_page.py", "--check"])
    assert page_maker.main() == 1
    monkeypatch.setattr(sys, "argv", ["make_options_page.py"])
    assert page_maker.main() == 0
    monkeypatch.setattr(sys, "argv", ["make_options_page.py", "--check"])
    assert page_maker.main() == 0
    assert "options.md is current" in capsys.readouterr().out
