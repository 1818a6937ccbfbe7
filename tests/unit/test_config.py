import logging
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta, Struct, field

from rocketlake import config
from rocketlake.errors import ConfigError
from rocketlake.known_keys import ALIASES, KNOWN_KEYS

Positive = Annotated[int, Meta(gt=0)]


class FlushMode(StrEnum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class StoreOptions(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    mapped_file_size_commit_log: Positive = 1 << 30
    mapped_file_size_consume_queue: Positive = 6_000_000
    flush_disk_type: FlushMode = FlushMode.ASYNC_FLUSH
    store_path_root_dir: str | None = None
    delete_when: str = "04"
    check_crc_on_recover: bool = field(default=True, name="checkCRCOnRecover")
    ha_max_gap_not_in_sync: int = 1 << 28

    def __post_init__(self):
        if self.mapped_file_size_consume_queue % 20:
            raise ValueError("mappedFileSizeConsumeQueue must be whole 20-byte units")


class BrokerOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    broker_name: str = "broker-a"
    broker_ip1: str | None = field(default=None, name="brokerIP1")
    store_path_root_dir: str | None = None
    max_error_rate: float = field(default=20.0, name="maxErrorRateOfBloomFilter")


class Required(Struct, frozen=True, rename="camel"):
    broker_name: str


# --- properties ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # What java.util.Properties makes of them.
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("a  b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("  a = b  ", {"a": "b  "}),
        ("a=b \r\nc=d", {"a": "b ", "c": "d"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a:=b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("a= =b", {"a": "=b"}),
        ("# c\n! d\n  # e\na=b", {"a": "b"}),
        ("a=b # no comment", {"a": "b # no comment"}),
        ("a=b\\\n  c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=\\\n\\\n  b", {"a": "b"}),
        ("# c \\\na=b", {"a": "b"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\\n\n c=d", {"a": "b", "c": "d"}),
        ("a=b\\\r\n   c", {"a": "bc"}),
        ("a\\\n  b=c", {"ab": "c"}),
        ("\\\na=b", {"a": "b"}),
        ("   \\\n  a=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a=\\", {"a": ""}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\:b=c", {"a:b": "c"}),
        ("a\\u003db=c", {"a=b": "c"}),
        ("a=\\u0041\\u00e9\\uD83D\\uDE00", {"a": "Aé😀"}),
        ("a=\\t\\n\\r\\f\\x\\z", {"a": "\t\n\r\fxz"}),
        ("a=\\ b", {"a": " b"}),
        ("path=C\\:\\\\x", {"path": "C:\\x"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\rc=d", {"a": "b", "c": "d"}),
        ("=b", {"": "b"}),
        (":b", {"": "b"}),
        ("a=b\fc", {"a": "b\fc"}),
        ("\fa\f=b", {"a": "b"}),
        ("a=b\v\u00a0", {"a": "b\v\u00a0"}),
        ("#\\\n#x\na=1", {"a": "1"}),
        ("\n \n", {}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, expected):
    assert config.parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u00", "a=\\u00xy", "a\\u=b", "a=\\u"])
def test_malformed_unicode_escape_is_refused(text):
    with pytest.raises(ConfigError, match="malformed"):
        config.parse_properties(text)


def test_long_run_of_backslashes_ends_soon():
    assert config.parse_properties("a=" + "\\" * 100_000) == {"a": "\\" * 50_000}


# --- sources ------------------------------------------------------------------------------------

BROKER_CONF = """\
# a broker
brokerClusterName = DefaultCluster
brokerName = broker-b
brokerIP1 = 10.0.0.1
deleteWhen = 04
storePathRootDir = /data/store\x20
mappedFileSizeCommitLog = 65536
flushDiskType=SYNC_FLUSH
checkCRCOnRecover=FALSE
"""


def test_file_is_dealt_to_every_struct(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text(BROKER_CONF)
    for source in (path, str(path)):
        store, broker = config.load(source, StoreOptions, BrokerOptions)
        assert store == StoreOptions(
            mapped_file_size_commit_log=65536,
            flush_disk_type=FlushMode.SYNC_FLUSH,
            store_path_root_dir="/data/store",
            check_crc_on_recover=False,
        )
        assert broker == BrokerOptions(
            broker_name="broker-b", broker_ip1="10.0.0.1", store_path_root_dir="/data/store"
        )


def test_json_text_and_mapping_are_the_same():
    expected = StoreOptions(mapped_file_size_commit_log=65536, check_crc_on_recover=False)
    text = '\n {"mappedFileSizeCommitLog": 65536, "checkCRCOnRecover": false}'
    assert config.load(text, StoreOptions) == (expected,)
    mapping = {"mappedFileSizeCommitLog": "65536", "checkCRCOnRecover": "false"}
    assert config.load(mapping, StoreOptions) == (expected,)
    assert config.load("{}", StoreOptions, BrokerOptions) == (StoreOptions(), BrokerOptions())


def test_file_is_read_as_latin_1_as_java_does(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_bytes("\ufeffbrokerName=é\n# 注释".encode())
    (broker,) = config.load(path, BrokerOptions)
    assert broker.broker_name == "Ã©"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("/no/such/broker.conf", "/no/such/broker.conf: cannot be read: No such file"),
        ("/", "cannot be read: Is a directory"),
        ("a\0b", "cannot be read"),
        ("{", "options are no JSON object"),
        ('{"a":1} x', "options are no JSON object"),
        ('{"a":' * 100_000, "options are no JSON object"),
    ],
)
def test_source_that_cannot_be_read_is_an_error(source, message):
    with pytest.raises(ConfigError, match=message):
        config.load(source, StoreOptions)


def test_malformed_file_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("a=\\u1")
    with pytest.raises(ConfigError) as caught:
        config.load(path, StoreOptions)
    assert str(caught.value).startswith(f"{path}: malformed")


# --- keys ---------------------------------------------------------------------------------------


def test_known_but_unused_keys_are_accepted_with_one_warning_each(caplog):
    source = {"brokerName": "x", "sendMessageThreadPoolNums": 4, "deleteWhen": "05"}
    (store,) = config.load(source, StoreOptions)
    assert store.delete_when == "05"
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "option known but unused key=brokerName source=options"),
        (logging.WARNING, "option known but unused key=sendMessageThreadPoolNums source=options"),
    ]
    assert config.unused_keys(source, StoreOptions) == ("brokerName", "sendMessageThreadPoolNums")
    assert config.unused_keys(source, StoreOptions, BrokerOptions) == ("sendMessageThreadPoolNums",)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
        ("MappedFileSizeCommitLog", "mappedFileSizeCommitLog"),
        ("mapped_file_size_commit_log", "mappedFileSizeCommitLog"),
        ("brokerIp1", "brokerIP1"),
        ("flushDiskTyp", "flushDiskType"),
    ],
)
def test_unknown_key_is_an_error_that_names_the_nearest(tmp_path, key, nearest):
    path = tmp_path / "broker.conf"
    path.write_text(f"{key}=1")
    with pytest.raises(ConfigError) as caught:
        config.load(path, StoreOptions)
    assert str(caught.value) == f"{path}: unknown option {key!r}; did you mean {nearest!r}?"


def test_unknown_key_like_no_other_is_an_error():
    with pytest.raises(ConfigError) as caught:
        config.load({"qqq": 1}, StoreOptions)
    assert str(caught.value) == "options: unknown option 'qqq'"


def test_key_declared_by_a_struct_alone_is_known():
    class Own(Struct, rename="camel"):
        only_here: int = 0

    assert "onlyHere" not in KNOWN_KEYS
    assert config.load({"onlyHere": 3}, Own) == (Own(3),)


def test_other_spelling_of_a_key_is_taken_for_it(caplog):
    (store,) = config.load({"haSlaveFallbehindMax": 7}, StoreOptions)
    assert store.ha_max_gap_not_in_sync == 7
    both = {"haMaxGapNotInSync": 8, "haSlaveFallbehindMax": 7}
    (store,) = config.load(both, StoreOptions)
    assert store.ha_max_gap_not_in_sync == 8
    assert not caplog.records


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("mappedFileSizeCommitLog", "1g", "Expected `int`, got `str`"),
        ("mappedFileSizeCommitLog", "", "Expected `int`, got `str`"),
        ("mappedFileSizeCommitLog", 0, "Expected `int` >= 1"),
        ("mappedFileSizeCommitLog", True, "Expected `int`, got `bool`"),
        ("mappedFileSizeCommitLog", [1], "Expected `int`, got `array`"),
        ("mappedFileSizeCommitLog", None, "Expected `int`, got `null`"),
        ("checkCRCOnRecover", "yes", "Expected `bool`, got `str`"),
        (
            "flushDiskType",
            "SYNC",
            "Invalid enum value 'SYNC', expected one of ASYNC_FLUSH, SYNC_FLUSH",
        ),
    ],
)
def test_malformed_value_is_an_error_that_names_key_value_and_type(key, value, reason):
    with pytest.raises(ConfigError) as caught:
        config.load({key: value}, StoreOptions)
    assert str(caught.value) == f"options: {key} = {value!r}: {reason}"


def test_values_are_converted():
    source = {
        "mappedFileSizeCommitLog": " 0065536 ",
        "haMaxGapNotInSync": "+5",
        "deleteWhen": 4,
        "storePathRootDir": Path("/data"),
        "maxErrorRateOfBloomFilter": "1.5",
        "brokerIP1": None,
        "brokerName": "true",
    }
    store, broker = config.load(source, StoreOptions, BrokerOptions)
    assert store.mapped_file_size_commit_log == 65536
    assert store.ha_max_gap_not_in_sync == 5
    assert store.delete_when == "4"
    assert store.store_path_root_dir == "/data"
    assert broker.max_error_rate == 1.5
    assert broker.broker_ip1 is None
    assert broker.broker_name == "true"


def test_values_that_do_not_go_together_are_an_error():
    with pytest.raises(ConfigError) as caught:
        config.load({"mappedFileSizeConsumeQueue": 21}, StoreOptions)
    assert str(caught.value) == "options: mappedFileSizeConsumeQueue must be whole 20-byte units"


def test_missing_value_without_a_default_is_an_error():
    with pytest.raises(ConfigError, match="options: option 'brokerName' is missing"):
        config.load({}, Required)


# --- the list of keys ---------------------------------------------------------------------------


def test_list_of_known_keys_is_plausible():
    assert len(KNOWN_KEYS) == 606
    assert {
        "mappedFileSizeCommitLog",  # MessageStoreConfig
        "mapperFileSizeBatchConsumeQueue",
        "enableDLegerCommitLog",
        "dLegerGroup",
        "brokerIP1",  # BrokerConfig
        "brokerClusterName",  # BrokerIdentity
        "listenPort",  # NettyServerConfig
        "clientWorkerThreads",  # NettyClientConfig
        "kvConfigPath",  # NamesrvConfig
        "controllerType",  # ControllerConfig
        "authenticationEnabled",  # AuthConfig
        "tieredStorageLevel",
        "filterServerNums",  # 4.x only
        "rmqAddressServerDomain",
        "timerRocksDBEnable",  # 5.5 only
        "useSingleRocksDBForAllConfigs",
    } <= KNOWN_KEYS


def test_keys_are_written_as_the_reference_writes_them():
    assert all(key.isalnum() and key.isascii() and key[0].islower() for key in KNOWN_KEYS)


def test_aliases_are_known_under_both_names():
    assert ALIASES.keys() | set(ALIASES.values()) <= KNOWN_KEYS
    assert not ALIASES.keys() & set(ALIASES.values())


def test_importing_config_imports_nothing_heavy():
    code = (
        "import sys, rocketlake; before = set(sys.modules); import rocketlake.config;"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    imported = set(done.stdout.split())
    assert "rocketlake.known_keys" in imported
    assert not imported & {"difflib", "numpy", "lark", "asyncio", "multiprocessing"}
