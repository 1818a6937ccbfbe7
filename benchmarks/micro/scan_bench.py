"""scan against the checksum alone, and against the pure twin."""

import zlib
from collections.abc import Iterator

import corpus
import numpy as np
from measure import Figure, best_of

from rocketlake.format import record
from rocketlake.format._kernel import pure


def crc_1k() -> Iterator[Figure]:
    data = corpus.log_bytes(64_000, 1024)
    scan, crc = best_of(7, lambda: _scan(data, record.Check.BODY_CRC), lambda: zlib.crc32(data))
    rate = len(data) / scan / 1e9
    yield Figure("scan.crc_1k", crc / scan, 0.8, "x zlib.crc32", detail=f"{rate:.2f} GB/s")


def plain_100b() -> Iterator[Figure]:
    count = 500_000
    data = corpus.log_bytes(count, 100)
    part = data[: 20_000 * len(data) // count]
    rows = np.empty(20_000, record.ROW_DTYPE).view(np.uint8)
    found = pure.scan(part, 0, len(part), 0, 0, rows)[0]
    native, slow = best_of(
        7,
        lambda: _scan(data, record.Check.SHAPE),
        lambda: pure.scan(part, 0, len(part), 0, 0, rows),
    )
    ratio = (count / native) / (found / slow)
    detail = f"{ratio:.0f} x pure (100 would do as well)"
    rate = Figure("scan.plain_100b", count / native / 1e6, 20, "M records/s", detail=detail)
    if ratio >= 100 and not rate.is_ok:
        rate = Figure("scan.plain_100b", ratio, 100, "x pure")
    yield rate


def _scan(data: bytes, checks: int) -> None:
    position = 0
    while position < len(data):
        position = record.scan(data, position, checks=checks).position


WORKLOADS = {"scan.crc_1k": crc_1k, "scan.plain_100b": plain_100b}
