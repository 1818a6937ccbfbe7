"""encode and seal, one message and a thousand, against the pure twin."""

from collections.abc import Callable, Iterator
from types import ModuleType

import corpus
from measure import Figure, best_of

from rocketlake.format import record
from rocketlake.format._kernel import pure
from rocketlake.format._kernel.chooser import KERNEL

ROUNDS = 20_000


def one() -> Iterator[Figure]:
    fast, slow = best_of(5, _encode_seal(KERNEL), _encode_seal(pure))
    detail = f"{fast / ROUNDS * 1e6:.2f} us each"
    yield Figure("encode.one", slow / fast, 2.5, "x pure", detail=detail)


def batch_1000() -> Iterator[Figure]:
    fast, slow = best_of(5, _batch(KERNEL), _batch(pure))
    detail = f"{fast / 20 / 1000 * 1e6:.2f} us each"
    yield Figure("encode.batch_1000", slow / fast, 10, "x pure", detail=detail)


def _encode_seal(kernel: ModuleType) -> Callable[[], None]:
    """Encode and seal through `format.record`, which calls this kernel."""
    message = corpus.messages(1, 100)[0]
    envelope = corpus.envelope()

    def run() -> None:
        chosen, record._KERNEL = record._KERNEL, kernel  # noqa: SLF001 - measure both twins
        try:
            for i in range(ROUNDS):
                kernel.seal(record.encode(message, envelope), 0, i, i, corpus.STORED, False)
        finally:
            record._KERNEL = chosen  # noqa: SLF001

    return run


def _batch(kernel: ModuleType) -> Callable[[], None]:
    messages = corpus.messages(1000, 100)
    envelope = corpus.envelope()

    def run() -> None:
        chosen, record._KERNEL = record._KERNEL, kernel  # noqa: SLF001 - measure both twins
        try:
            for _ in range(20):
                record.encode_batch(messages, corpus.TOPIC, envelope)
        finally:
            record._KERNEL = chosen  # noqa: SLF001

    return run


WORKLOADS = {"encode.one": one, "encode.batch_1000": batch_1000}
