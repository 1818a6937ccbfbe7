"""Resolves the options of a store: the caller's choice, the sizes of its files, and defaults."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketlake.files.mapped_file_queue import QueuePaths
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import layout
from rocketlake.store.disk.file_shape import find_shape
from rocketlake.store.disk.log_dirs import named_paths
from rocketlake.store.options import Choice, StoreOptions, embedded, keeping

log = logging.getLogger(__name__)


def log_paths(root: Path, values: Mapping[str, Any]) -> QueuePaths | None:
    """Return the log directories in the options; None without one."""
    names_ = ("store_path_commit_log", "read_only_commit_log_store_paths")
    writable, read_only = (values.get(name) for name in names_)
    return named_paths(writable, read_only, root)


def preset_of(choice: Choice, preset: Mapping[str, object] | None = None) -> Mapping[str, object]:
    """Return the embedded defaults; none with a broker.conf, where RocketMQ's apply."""
    if choice.is_broker_conf:
        return {}
    return embedded() if preset is None else preset


def kept_options(choice: Choice) -> Mapping[str, object]:
    """Return the options that keep every message; none with a broker.conf."""
    # Why: a broker.conf asks for what that broker does, including deletion.
    return {} if choice.is_broker_conf else keeping(choice.values)


def resolve_options(
    directory: StoreDir, choice: Choice, kept: Mapping[str, object]
) -> StoreOptions:
    """Return all options of a store: chosen ones, those of its files, and defaults.

    Raises:
        ConfigError: a choice contradicts the files.
    """
    found = find_shape(directory, choice.values)
    is_reference = found.get("mapped_file_size_commit_log") == layout.DEFAULT_LOG_FILE_SIZE
    # Why: the store of a broker gets no small files beside its large ones, which it could not use.
    preset = {"default_topic_queue_nums": 4} if is_reference else embedded()
    options = StoreOptions.complete(choice, found, kept, preset_of(choice, preset))
    choice.check_agrees(options, found, where=directory.root)
    for doubt in options.warnings():
        log.warning("doubtful option store=%s %s", directory.root, doubt)
    return options
