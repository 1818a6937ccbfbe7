"""Options that say how a store was written, as a reader needs them.

Keys are the reference's. None means: take it from the files. A reader accepts every key that a
writer accepts (`StoreOptions.choose`), so that one broker.conf serves both.
"""

from typing import Self

from msgspec import Struct, field

from rocketlake.errors import ConfigError
from rocketlake.store.options.bounds import Positive
from rocketlake.store.options.choosing import Choice
from rocketlake.store.options.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rocketlake.store.options.store_options import StoreOptions


class ReadOptions(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The options of a reader of a store."""

    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    mapped_file_size_commit_log: Positive | None = None
    mapped_file_size_consume_queue: Positive | None = None
    mapper_file_size_batch_consume_queue: Positive | None = None
    mapped_file_size_consume_queue_ext: Positive | None = None
    max_hash_slot_num: Positive | None = None
    message_index_safe: bool = False
    check_crc_on_recover: bool = field(name="checkCRCOnRecover", default=True)
    enabled_append_prop_crc: bool = field(name="enabledAppendPropCRC", default=False)
    force_verify_prop_crc: bool = field(name="forceVerifyPropCRC", default=False)
    max_msgs_num_batch: Positive = 64
    message_delay_level: str = DEFAULT_DELAY_LEVELS

    @classmethod
    def of(cls, choice: Choice) -> Self:
        """Return what a choice of a store's options tells a reader.

        Raises:
            ConfigError: the delay levels are wrong.
        """
        names = cls.__struct_fields__
        options = cls(**{name: choice.values[name] for name in names if name in choice.values})
        try:
            parse_delay_levels(options.message_delay_level)
        except ValueError as error:
            raise ConfigError(f"{choice.source}: {error}") from error
        return options

    @classmethod
    def of_store(cls, options: StoreOptions) -> Self:
        """Return what the options of a store that writes tell a reader."""
        names = cls.__struct_fields__
        return cls(**{name: getattr(options, name) for name in names if hasattr(options, name)})

    @property
    def delay_levels_ms(self) -> list[int]:
        """The delay of each level."""
        return parse_delay_levels(self.message_delay_level)
