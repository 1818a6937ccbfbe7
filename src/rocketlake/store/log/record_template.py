"""Frames: what the records of one queue share, by the options of a store."""

from rocketlake.format import layout
from rocketlake.format.appending import RecordFrame
from rocketlake.format.record import version_for
from rocketlake.model.endpoint import Endpoint
from rocketlake.store.options import CompatVersion, StoreOptions

_NO_LIMIT = layout.MAX_I32


class FrameMaker:
    """Makes frames for one store."""

    def __init__(self, options: StoreOptions) -> None:
        self.store_host = options.store_endpoint
        self.store_host_bytes = self.store_host.encode()
        self.trailing = options.compat_version is not CompatVersion.V4_9
        self._reserve_crc = options.enabled_append_prop_crc
        self._takes_version_2 = options.auto_message_version_on_topic_len
        self.body_max = self._batch_max = options.max_message_size
        self.record_max = min(
            options.record_size_max,
            options.mapped_file_size_commit_log - layout.BLANK_HEADER_SIZE,
        )
        if options.compat_version is CompatVersion.V4_6:
            self.body_max = _NO_LIMIT  # Compat: 4.6 limits the record alone

    def guarded(self, topic: str, queue_id: int) -> RecordFrame:
        """Return the frame of plain messages born in this process."""
        return RecordFrame(
            topic=topic.encode(),
            queue_id=queue_id,
            sys_flag=0,
            born_host=self.store_host_bytes,
            store_host=self.store_host_bytes,
            reconsume_times=0,
            prepared=0,
            version=self.version(topic),
            trailing=self.trailing,
            reserve_crc=self._reserve_crc,
            body_max=self.body_max,
            record_max=self.record_max,
            batch_max=self._batch_max,
            is_guarded=True,
        )

    def frame(
        self,
        topic: str,
        queue_id: int,
        *,
        sys_flag: int,
        hosts: tuple[Endpoint, Endpoint | None],
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> RecordFrame:
        """Return a frame for what was checked before; hosts are those of birth and of the store.

        Raises:
            ValueError: a field does not fit into the format.
        """
        born_host, store_host = hosts
        return RecordFrame(
            topic=topic.encode(),
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_host=born_host.encode(),
            store_host=store_host.encode() if store_host is not None else self.store_host_bytes,
            reconsume_times=reconsume_times,
            prepared=prepared_transaction_offset,
            version=self.version(topic),
            trailing=self.trailing,
            reserve_crc=self._reserve_crc,
            body_max=_NO_LIMIT,
            record_max=_NO_LIMIT,
            batch_max=_NO_LIMIT,
            is_guarded=False,
        )

    def version(self, topic: str) -> int:
        """Return the record version for a topic."""
        return version_for(topic) if self._takes_version_2 else 1

    def record_size(
        self,
        topic: str,
        body_size: int,
        properties_size: int,
        hosts: tuple[Endpoint, Endpoint | None],
    ) -> int:
        """Return the size of a record; hosts are those of birth and of the store."""
        born_host, store_host = hosts
        widths = len(born_host.address) + len((store_host or self.store_host).address) + 8
        widths += 4 + self.version(topic) + 2  # the lengths of body, topic and properties
        crc = layout.MAX_I16 - self.properties_room()
        size = layout.RECORD_FIXED_SIZE + widths + body_size + len(topic.encode())
        return size + properties_size + crc

    def properties_room(self) -> int:
        """Return how many bytes of properties a record holds beside its own checksum."""
        return layout.MAX_I16 - (layout.RECORD_CRC_SIZE if self._reserve_crc else 0)
