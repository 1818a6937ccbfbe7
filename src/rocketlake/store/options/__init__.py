"""Options of a store: of one that writes, of one that only reads."""

from rocketlake.store.options.bounds import BrokerRole, CompatVersion, FlushMode, StoreType
from rocketlake.store.options.choosing import Choice
from rocketlake.store.options.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rocketlake.store.options.presets import embedded, keeping
from rocketlake.store.options.read_options import ReadOptions
from rocketlake.store.options.store_options import FILE_SHAPE, StoreOptions
from rocketlake.store.options.unread import UNREAD, OptionReader, Unread

__all__ = [
    "DEFAULT_DELAY_LEVELS",
    "FILE_SHAPE",
    "UNREAD",
    "BrokerRole",
    "Choice",
    "CompatVersion",
    "FlushMode",
    "OptionReader",
    "ReadOptions",
    "StoreOptions",
    "StoreType",
    "Unread",
    "embedded",
    "keeping",
    "parse_delay_levels",
]
