"""Host and port: the bytes of a record, and the text that Java prints."""

import pytest

from rocketlake.model.endpoint import Endpoint, host_text

V6 = bytes.fromhex("20010db8000000000000000000000007")


def test_encode_of_v4_is_address_and_four_bytes_of_port():
    assert Endpoint(bytes([192, 168, 0, 1]), 1234).encode().hex() == "c0a80001000004d2"


def test_encode_of_v6_is_address_and_four_bytes_of_port():
    assert Endpoint(V6, 7).encode() == V6 + b"\0\0\0\7"


@pytest.mark.parametrize("port", [0, 1, 65535, 65536, (1 << 31) - 1, -1, -(1 << 31)])
def test_decode_gives_back_any_port_of_32_bits(port):
    endpoint = Endpoint(b"\x0a\0\0\2", port)
    assert Endpoint.decode(endpoint.encode()) == endpoint


def test_decode_takes_a_memoryview():
    assert Endpoint.decode(memoryview(b"\x0a\0\0\2\0\0\x2a\x9f")) == Endpoint(b"\x0a\0\0\2", 10911)


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 19, 21])
def test_decode_of_another_size_is_refused(size):
    with pytest.raises(ValueError, match=f"8 or 20 bytes, not {size}"):
        Endpoint.decode(bytes(size))


def test_is_v6_follows_the_size_of_the_address():
    assert Endpoint(V6, 7).is_v6
    assert not Endpoint(bytes(4), 7).is_v6


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("c0a80001", "192.168.0.1:1234"),
        ("00000000", "0.0.0.0:1234"),
        ("ffffffff", "255.255.255.255:1234"),
        # Java leaves no group out and writes no leading zeros.
        ("20010db8000000000000000000000007", "[2001:db8:0:0:0:0:0:7]:1234"),
        ("00000000000000000000000000000001", "[0:0:0:0:0:0:0:1]:1234"),
        ("00000000000000000000000000000000", "[0:0:0:0:0:0:0:0]:1234"),
        ("00000000000000000000ffff01020304", "[0:0:0:0:0:ffff:102:304]:1234"),
        ("fe80000000000000abcdef0123456789", "[fe80:0:0:0:abcd:ef01:2345:6789]:1234"),
    ],
)
def test_text_is_as_java_prints_it(address, text):
    endpoint = Endpoint(bytes.fromhex(address), 1234)
    assert str(endpoint) == text
    assert Endpoint.parse(text) == endpoint
    assert host_text(endpoint.encode()) == text


def test_parse_reads_a_shortened_v6():
    assert Endpoint.parse("[2001:db8::7]:7") == Endpoint(V6, 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "1.2.3.4",
        "1.2.3.4:",
        ":99",
        "1.2.3.4:port",
        "1.2.3.4:9.9",
        "1.2.3:99",
        "1.2.3.256:99",
        "localhost:99",
        "[2001:db8::7]",
        "[2001:db8::7::1]:99",
        "[]:99",
        "2001:db8:0:0:0:0:0:0:0:7:99",
    ],
)
def test_parse_of_what_is_no_endpoint_names_the_text(text):
    with pytest.raises(ValueError, match="not a host and port") as refusal:
        Endpoint.parse(text)
    assert repr(text) in str(refusal.value)


def test_equal_endpoints_are_one_key_of_a_dict():
    assert len({Endpoint(V6, 7), Endpoint(bytes(V6), 7), Endpoint(V6, 8)}) == 2
