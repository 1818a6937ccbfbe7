"""Body compression: zlib, lz4, zstd, by the flag bits of a message."""

import zlib
from enum import IntEnum
from typing import IO

from rocketlake.model import flags

_ZSTD_STEP = 1024  # compressed bytes at a time: what they grow to is looked at in between


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


def inflate(body: bytes, sys_flag: int, *, size_max: int = 1 << 30) -> bytes:
    """Return the plain body of a stored one; an uncompressed body comes back as it is.

    Raises:
        ValueError: the body is not what its flags say, or would grow beyond `size_max`.
    """
    kind = compression(sys_flag)
    if kind is None:
        return body
    try:
        plain = _INFLATE[kind](body, size_max)
    except (zlib.error, RuntimeError, EOFError, MemoryError) as error:
        raise ValueError(f"body is not {kind.name}: {error}") from error
    if len(plain) > size_max:
        raise ValueError(f"{kind.name} body grows beyond {size_max} bytes")
    return plain


def deflate(body: bytes, kind: Compression, *, level: int = 5) -> bytes:
    """Compress a body."""
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
    rest = body
    while True:  # a body may be several frames
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            for at in range(0, len(rest), _ZSTD_STEP):
                plain += frame.decompress(rest[at : at + _ZSTD_STEP])
                if len(plain) > size_max or frame.eof:
                    rest = frame.unused_data + rest[at + _ZSTD_STEP :]
                    break
        except zstandard.ZstdError as error:
            raise ValueError(f"body is not ZSTD: {error}") from error
        if len(plain) > size_max:
            return bytes(plain)
        if not frame.eof:
            raise ValueError("body is not ZSTD: it ends too early")
        if not rest:
            return bytes(plain)


_INFLATE = {
    Compression.ZLIB_OLD: _inflate_zlib,
    Compression.ZLIB: _inflate_zlib,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}
