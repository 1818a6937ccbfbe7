"""Inner batches: several messages <-> one record of a batch topic."""

from collections.abc import Sequence

from rocketlake.format.batch import BatchEntry, decode_entries, encode_entries
from rocketlake.format.record import StoredMessage, crc31, encode_properties
from rocketlake.model import flags
from rocketlake.model import properties as names
from rocketlake.model.message import Message

PACKED = flags.INNER_BATCH | flags.NEED_UNWRAP
"""System flag of a record that holds a batch."""

_OUTER_ONLY = flags.INNER_BATCH | flags.NEED_UNWRAP | flags.COMPRESSED | flags.COMPRESSION_MASK


def is_inner_batch(message: StoredMessage) -> bool:
    """Tell whether a record holds several messages."""
    return bool(message.sys_flag & flags.INNER_BATCH)


def pack(messages: Sequence[Message]) -> Message:
    """Return one message that holds several, to be put with the flag `PACKED`.

    Compat: as SendMessageProcessor#sendBatchMessage does for a batch topic.

    Raises:
        ValueError: properties that cannot be written.
    """
    entries = [
        BatchEntry(bytes(message.body), _raw_properties(message), message.flag)
        for message in messages
    ]
    first = messages[0]
    return Message(
        topic=first.topic,
        body=encode_entries(entries),
        properties={names.INNER_NUM: str(len(entries))},
        wait=any(message.wait for message in messages),
    )


def _raw_properties(message: Message) -> bytes:
    found = dict(message.properties)
    if message.keys:
        found.setdefault(names.KEYS, names.KEY_SEPARATOR.join(message.keys))
    if message.tags:
        found.setdefault(names.TAGS, message.tags)
    with_last_separator = True
    return encode_properties(found, with_last_separator)


def unpack(message: StoredMessage) -> list[StoredMessage]:
    """Return the messages of an inner batch, each with its own queue offset.

    Compat: as in MessageDecoder#decodeMessage, they share the record, so its id and times. The
    flags of the batch as a whole are removed.

    Raises:
        ValueError: the body does not match its flags, or its lengths do not add up.
    """
    entries = decode_entries(message.body)
    return [_inner(message, index, entry) for index, entry in enumerate(entries)]


def _inner(outer: StoredMessage, index: int, entry: BatchEntry) -> StoredMessage:
    return StoredMessage(
        topic=outer.topic,
        queue_id=outer.queue_id,
        queue_offset=outer.queue_offset + index,
        physical_offset=outer.physical_offset,
        store_size=outer.store_size,
        store_timestamp=outer.store_timestamp,
        born_timestamp=outer.born_timestamp,
        born_host=outer.born_host,
        store_host=outer.store_host,
        flag=entry.flag,
        sys_flag=outer.sys_flag & ~_OUTER_ONLY,
        body_crc=crc31(entry.body),
        reconsume_times=outer.reconsume_times,
        prepared_transaction_offset=outer.prepared_transaction_offset,
        properties=entry.properties,
        raw_properties=entry.raw_properties,
        stored_body=entry.body,
        version=outer.version,
    )
