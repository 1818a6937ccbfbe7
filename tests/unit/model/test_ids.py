"""The two kinds of id; both have 32 or 56 hex digits (docs/formats/commitlog.md)."""

import pytest

from rocketlake.model.endpoint import Endpoint
from rocketlake.model.ids import OffsetMessageId, UniqueId, offset_message_id

STORE_HOST = Endpoint(bytes([10, 0, 0, 2]), 10911)
STORE_HOST_V6 = Endpoint(bytes.fromhex("20010db8000000000000000000000007"), 7)

# --- offset message id -----------------------------------------------------------------------


def test_offset_id_of_the_spec_vector():
    assert str(OffsetMessageId(STORE_HOST, 4096)) == "0A00000200002A9F0000000000001000"
    assert offset_message_id(STORE_HOST.encode(), 4096) == "0A00000200002A9F0000000000001000"


def test_offset_id_of_v6_has_56_digits():
    text = str(OffsetMessageId(STORE_HOST_V6, 296))
    assert text == "20010DB8000000000000000000000007000000070000000000000128"
    assert len(text) == 56


@pytest.mark.parametrize("offset", [0, 1, 1 << 40, (1 << 63) - 1, -1])
@pytest.mark.parametrize("host", [STORE_HOST, STORE_HOST_V6], ids=["v4", "v6"])
def test_offset_id_parsed_gives_host_and_offset(host, offset):
    made = OffsetMessageId(host, offset)
    assert OffsetMessageId.parse(str(made)) == made


def test_offset_id_in_lower_case_is_read():
    parsed = OffsetMessageId.parse("0a00000200002a9f0000000000001000")
    assert parsed == OffsetMessageId(STORE_HOST, 4096)


WRONG_TEXTS = [
    "",
    "0A",
    "0A00000200002A9F00000000000010",
    "0A00000200002A9F00000000000010000",
    "0A00000200002A9F000000000000100000",
    "0A00000200002A9F000000000000100G",
    "key-of-a-message",
    "0" * 54,
    "0" * 58,
]


@pytest.mark.parametrize("text", WRONG_TEXTS)
def test_offset_id_of_wrong_text_is_refused_with_the_text(text):
    with pytest.raises(ValueError, match="message id") as refusal:
        OffsetMessageId.parse(text)
    assert repr(text) in str(refusal.value)


# --- unique id -------------------------------------------------------------------------------


def test_unique_id_is_address_process_loader_time_and_counter():
    made = UniqueId(
        address=bytes([172, 18, 0, 1]),
        process_id=0x0102,
        loader_hash=0x18B4AAC2,
        since_month_ms=0x0A0B0C0D,
        counter=0xFFFE,
    )
    assert str(made) == "AC120001" + "0102" + "18B4AAC2" + "0A0B0C0D" + "FFFE"
    assert UniqueId.parse(str(made)) == made


def test_unique_id_of_v6_has_56_digits():
    made = UniqueId(STORE_HOST_V6.address, 1, 2, 3, 4)
    text = str(made)
    assert text == "20010DB8000000000000000000000007" + "0001" + "00000002" + "00000003" + "0004"
    assert UniqueId.parse(text) == made


@pytest.mark.parametrize("text", WRONG_TEXTS)
def test_unique_id_of_wrong_text_is_refused_with_the_text(text):
    with pytest.raises(ValueError, match="unique key") as refusal:
        UniqueId.parse(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize("kind", [OffsetMessageId, UniqueId])
@pytest.mark.parametrize(
    "text",
    ["0A000002 00002A9F 00000000 00001000", "0A00000200002A9F0000000000001000\n"],
    ids=["blanks", "newline"],
)
def test_id_with_blanks_between_its_digits_is_refused(kind, text):
    with pytest.raises(ValueError, match=r"hex digits|not a"):
        kind.parse(text)
