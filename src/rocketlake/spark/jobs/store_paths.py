"""Stores under paths that executors find too: they run in other directories than the driver."""

from rocketlake.files.local_path import absolute_path
from rocketlake.store.offline import OfflineStore


def is_named_from_the_root(store: OfflineStore) -> bool:
    """Tell whether every path of a store is absolute."""
    return all(path.is_absolute() for path in (store.directory.root, *store.directory.log_dirs))


def named_from_the_root(store: OfflineStore) -> OfflineStore:
    """Open a store once more, under absolute paths."""
    return OfflineStore(
        absolute_path(store.directory.root),
        log_dirs=tuple(absolute_path(path) for path in store.directory.log_dirs),
        options=store.options,
        ops=store.directory.ops,
    )
