"""Body compression: zlib, lz4, zstd, by the flag bits of a message.

A small body may inflate to a thousand times its size. So inflating stops at a limit, which is set
for the process by `set_body_size_max` or by the environment variable ROCKETLAKE_BODY_SIZE_MAX.
"""

import os
import zlib
from enum import IntEnum
from typing import IO, Final

from rocketlake.errors import ConfigError
from rocketlake.model import flags

BODY_SIZE_MAX: Final = 64 << 20
"""The limit without a setting: 16 times the largest message that a broker takes by default."""
VARIABLE: Final = "ROCKETLAKE_BODY_SIZE_MAX"

_ZSTD_GROWTH: Final = 32_768  # a block of 4 bytes inflates to 128 KiB
_ZSTD_STEP_MIN: Final = 64


class Compression(IntEnum):
    """The compression bits of a system flag; 0 is the zlib of releases before 4.9.4."""

    ZLIB_OLD = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression(sys_flag: int) -> Compression | None:
    """Return how a body with these flags is compressed, or None if it is not.

    Raises:
        ValueError: the bits name no known compression.
    """
    if not sys_flag & flags.COMPRESSED:
        return None
    kind = (sys_flag & flags.COMPRESSION_MASK) >> flags.COMPRESSION_SHIFT
    try:
        return Compression(kind)
    except ValueError:
        raise ValueError(f"unknown compression type {kind} in system flag {sys_flag}") from None


class _Limit:
    """The limit of the process. Thread-safety: one attribute is read and replaced."""

    def __init__(self, text: str | None) -> None:
        self._text = text
        self._size_max = BODY_SIZE_MAX if text is None else 0

    @property
    def size_max(self) -> int:
        # Why not at import: a wrong text is told by the call that needs it, as one of our errors.
        if not self._size_max:
            text = self._text or ""
            if not (text.isascii() and text.isdigit() and int(text) > 0):
                raise ConfigError(f"{VARIABLE}={text!r}: wanted a number of bytes, at least 1")
            self._size_max = int(text)
        return self._size_max

    @size_max.setter
    def size_max(self, size_max: int) -> None:
        self._size_max = size_max


_limit = _Limit(os.environ.get(VARIABLE))


def body_size_max() -> int:
    """Return how many bytes a compressed body may inflate to.

    Raises:
        ConfigError: the environment variable holds no number of bytes.
    """
    return _limit.size_max


def set_body_size_max(size_max: int) -> None:
    """Set how many bytes a compressed body may inflate to, in this process.

    Raises:
        ValueError: it is not at least 1.
    """
    if type(size_max) is not int or size_max < 1:
        raise ValueError(f"size_max = {size_max!r}: wanted a number of bytes, at least 1")
    _limit.size_max = size_max


def inflate(body: bytes, sys_flag: int, *, size_max: int | None = None) -> bytes:
    """Return the plain body of a stored one; an uncompressed body comes back as it is.

    `size_max` is the limit of the process, unless it is given.

    Raises:
        ValueError: the body is not what its flags say, or would grow beyond `size_max`.
        ConfigError: the environment variable for the limit holds no number of bytes.
    """
    kind = compression(sys_flag)
    if kind is None:
        return body
    size_max = _limit.size_max if size_max is None else size_max
    try:
        plain = _INFLATE[kind](body, size_max)
    except (zlib.error, RuntimeError, EOFError, MemoryError) as error:
        raise ValueError(f"body is not {kind.name}: {error}") from error
    if len(plain) > size_max:
        raise ValueError(
            f"{kind.name} body of {len(body)} bytes grows beyond {size_max} bytes; raise the limit"
            f" with rocketlake.set_body_size_max or the environment variable {VARIABLE}"
        )
    return plain


def deflate(body: bytes, kind: Compression, *, level: int = 5) -> bytes:
    """Compress a body, as producers do."""
    # The two libraries are imported where they are used: a store rarely needs them, and every
    # start would pay.
    if kind is Compression.LZ4:
        import lz4.frame  # noqa: PLC0415

        return bytes(lz4.frame.compress(body, store_size=False))
    if kind is Compression.ZSTD:
        import zstandard  # noqa: PLC0415

        return zstandard.ZstdCompressor(level=level).compress(body)
    return zlib.compress(body, level)


def zstd_stream(stream: IO[bytes]) -> IO[bytes]:
    """Return a stream whose bytes go compressed into another one, which stays open."""
    import zstandard  # noqa: PLC0415

    return zstandard.ZstdCompressor(level=3).stream_writer(stream, closefd=False)


def flagged(sys_flag: int, kind: Compression) -> int:
    """Return the flags of a body that was compressed this way."""
    cleared = sys_flag & ~(flags.COMPRESSED | flags.COMPRESSION_MASK)
    return cleared | flags.COMPRESSED | kind << flags.COMPRESSION_SHIFT


def _inflate_zlib(body: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, size_max + 1)
    if not stream.eof and len(plain) <= size_max:
        raise ValueError("body is not ZLIB: it ends too early")
    return plain


def _inflate_lz4(body: bytes, size_max: int) -> bytes:
    import lz4.frame  # noqa: PLC0415

    stream = lz4.frame.LZ4FrameDecompressor()
    plain = stream.decompress(body, size_max + 1)
    if not stream.eof and len(plain) <= size_max:
        raise ValueError("body is not LZ4: it ends too early")
    return bytes(plain)


def _inflate_zstd(body: bytes, size_max: int) -> bytes:
    import zstandard  # noqa: PLC0415

    plain = bytearray()
    decompressor = zstandard.ZstdDecompressor()
    # Why: what goes in at once must not grow to much more than the limit.
    step = max(size_max // _ZSTD_GROWTH, _ZSTD_STEP_MIN)
    at = 0
    while True:  # a body may be several frames
        frame = decompressor.decompressobj()
        try:
            while at < len(body) and not frame.eof and len(plain) <= size_max:
                plain += frame.decompress(body[at : at + step])
                at += step
        except zstandard.ZstdError as error:
            raise ValueError(f"body is not ZSTD: {error}") from error
        if len(plain) > size_max:
            return bytes(plain)
        if not frame.eof:
            raise ValueError("body is not ZSTD: it ends too early")
        at = min(at, len(body)) - len(frame.unused_data)
        if at >= len(body):
            return bytes(plain)


_INFLATE = {
    Compression.ZLIB_OLD: _inflate_zlib,
    Compression.ZLIB: _inflate_zlib,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}
