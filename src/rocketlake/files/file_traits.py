"""What a mapped file is made from: its place, and how its family treats its files."""

from pathlib import Path
from typing import Final

from msgspec import Struct


class FilePlace(Struct, frozen=True):
    """The path of a file, the offset of its first byte, and its length."""

    path: Path
    base_offset: int
    size: int


class FileTraits(Struct, frozen=True, kw_only=True):
    """How a family treats its files."""

    is_sparse: bool = False  # space is taken as it is needed, in small steps
    is_durable: bool = True  # a new file survives a power cut before anything is in it
    keeps_descriptor: bool = True  # kept open until it is full and flushed


LOG_FILES: Final = FileTraits()
# Why: there may be tens of thousands of queues, each with a file, and all can be rebuilt.
QUEUE_FILES: Final = FileTraits(is_sparse=True, is_durable=False, keeps_descriptor=False)
# Why: hundreds of megabytes each, of which few may ever be used, and all can be rebuilt.
INDEX_FILES: Final = FileTraits(is_sparse=True, is_durable=False)
