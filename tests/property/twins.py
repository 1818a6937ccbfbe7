"""Both kernels side by side: the same call on each, and whether they answer the same."""

import pytest

from rocketlake.format import layout
from rocketlake.format._kernel import pure

try:
    from rocketlake.format._kernel import native
except ImportError:
    native = None

needs_native = pytest.mark.skipif(native is None, reason="the compiled kernel is not built")
"""Without it there is nothing to compare."""

EVERY_CHECK = range(16)


def answer(kernel, name, *arguments, **options):
    """Call a function; return its value or what it raised, and what it left in its buffers.

    A bytearray is copied first: it is where a function writes to.
    """
    own = [bytearray(a) if isinstance(a, bytearray) else a for a in arguments]
    try:
        value = getattr(kernel, name)(*own, **options)
        outcome = (type(value).__name__, value)
    except Exception as error:  # noqa: BLE001 - what is raised is what is compared
        outcome = ("raised", type(error).__name__, str(error))
    return outcome, [bytes(a) for a in own if isinstance(a, bytearray)]


def assert_same(name, *arguments, **options):
    """Call a function on both kernels; return what both say."""
    expected = answer(pure, name, *arguments, **options)
    assert answer(native, name, *arguments, **options) == expected
    return expected[0]


def differences(calls):
    """Return the calls, by their names, that the kernels answer in different ways."""
    both = {
        name: [answer(kernel, *call) for kernel in (pure, native)] for name, call in calls.items()
    }
    return {
        name: [a[0] for a in answers] for name, answers in both.items() if answers[0] != answers[1]
    }


def scan_with(kernel, data, start, end, base_offset, checks, rows=8):
    """Return what a scan found: count, reason, position, and the bytes of the rows."""
    out = bytearray(b"\xee" * (rows * layout.ROW_SIZE))
    count, reason, position = kernel.scan(data, start, end, base_offset, checks, out)
    return count, int(reason), position, bytes(out[: count * layout.ROW_SIZE])


def assert_same_scan(data, start=0, end=None, base_offset=0, checks=EVERY_CHECK, rows=8):
    """Scan on both kernels, once for each combination of checks; return the answers."""
    end = len(data) if end is None else end
    found = []
    for each in checks:
        expected = scan_with(pure, data, start, end, base_offset, each, rows)
        assert scan_with(native, data, start, end, base_offset, each, rows) == expected, each
        found.append(expected)
    return found


def scan_at_with(kernel, data, places, checks):
    """Return how many places are good, the reason of each, and the bytes of the rows."""
    rows = bytearray(b"\xee" * (len(places) // 24 * layout.ROW_SIZE))
    reasons = bytearray(b"\xee" * (len(places) // 24))
    good = kernel.scan_at(data, places, checks, rows, reasons)
    return good, bytes(reasons), bytes(rows)


def assert_same_scan_at(data, places, checks=EVERY_CHECK):
    """Parse places on both kernels, once for each combination of checks; return the answers."""
    found = []
    for each in checks:
        expected = scan_at_with(pure, data, places, each)
        assert scan_at_with(native, data, places, each) == expected, each
        found.append(expected)
    return found
