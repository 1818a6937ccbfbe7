"""Extension units of a store that is only read."""

from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.format.layout import MAX_I16
from rocketlake.format.queue_unit import ExtUnit, ext_offset
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.log import Readers


def ext_unit_at(
    directory: StoreDir, readers: Readers, key: QueueKey, address: int
) -> ExtUnit | None:
    """Return the extension unit of a queue at an address; None if none is there."""
    place = directory.path(names.CONSUME_QUEUE_EXT) / key.topic / str(key.queue_id)
    offset = ext_offset(address)
    for file in reversed(directory.offset_files(place)):
        if file.base_offset <= offset < file.base_offset + file.size:
            return ExtUnit.decode(readers.read(file.path, offset - file.base_offset, MAX_I16))
    return None
