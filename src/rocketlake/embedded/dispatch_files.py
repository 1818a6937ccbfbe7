"""The files that dispatch writes, for jobs that write them in place of a store.

Queues, the index, and the files of external dispatch (docs/spark/jobs.md).
"""

from rocketlake.store.dispatch.external_files import (
    DISPATCH,
    ExternalDispatch,
    ProgressNote,
    WriterNote,
    acquire_within,
)
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.index.index_file import IndexShape
from rocketlake.store.ports import CustomDispatcher, DispatchSlice
from rocketlake.store.queue.batch import BatchConsumeQueue
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.queue_set import ConsumeQueueSet, QueueShape

__all__ = [
    "DISPATCH",
    "BatchConsumeQueue",
    "ConsumeQueue",
    "ConsumeQueueSet",
    "CustomDispatcher",
    "DispatchSlice",
    "ExternalDispatch",
    "IndexFileSet",
    "IndexShape",
    "ProgressNote",
    "QueueShape",
    "WriterNote",
    "acquire_within",
]
