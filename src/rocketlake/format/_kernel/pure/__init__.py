"""Readable reference implementation of the hot loops.

1. This is the specification: `native` gives the same answers on every input, garbage included.
2. Buffers in, integers and buffers out. Nothing here calls back, and no
   function keeps state.
3. Every read is checked against the end of the buffer.
"""

from rocketlake.format._kernel.pure.appending import RecordFrame, append, append_batch
from rocketlake.format._kernel.pure.arrow import arrow_columns
from rocketlake.format._kernel.pure.bulk import append_rows, encode_rows
from rocketlake.format._kernel.pure.dispatching import dispatch_columns, key_entries
from rocketlake.format._kernel.pure.encoding import encode, encode_batch, seal
from rocketlake.format._kernel.pure.field_append import PropertyEdits, append_fields
from rocketlake.format._kernel.pure.indexing import index_lookup, index_put, index_walk, put_entries
from rocketlake.format._kernel.pure.lines import json_lines
from rocketlake.format._kernel.pure.message import StoredMessage
from rocketlake.format._kernel.pure.name import NAME
from rocketlake.format._kernel.pure.properties import (
    decode_properties,
    encode_properties,
    message_properties,
)
from rocketlake.format._kernel.pure.reading import (
    make_messages,
    read_columns,
    read_ranges,
    read_units,
)
from rocketlake.format._kernel.pure.scanning import crc31, intern_topics, scan, scan_at
from rocketlake.format._kernel.pure.tail import LogTail, are_inert, set_together
from rocketlake.format._kernel.pure.units import filter_units
from rocketlake.model.hashes import java_hash, key_hash

__all__ = [
    "NAME",
    "LogTail",
    "PropertyEdits",
    "RecordFrame",
    "StoredMessage",
    "append",
    "append_batch",
    "append_fields",
    "append_rows",
    "are_inert",
    "arrow_columns",
    "crc31",
    "decode_properties",
    "dispatch_columns",
    "encode",
    "encode_batch",
    "encode_properties",
    "encode_rows",
    "filter_units",
    "index_lookup",
    "index_put",
    "index_walk",
    "intern_topics",
    "java_hash",
    "json_lines",
    "key_entries",
    "key_hash",
    "make_messages",
    "message_properties",
    "put_entries",
    "read_columns",
    "read_ranges",
    "read_units",
    "scan",
    "scan_at",
    "seal",
    "set_together",
]
