"""PastDamageStore: the end of a log that is read past its damage, also while it grows."""

from pathlib import Path

from rocketlake.store.offline import OfflineStore
from rocketlake.store.offline.past_damage import PastDamageStore
from support.manual_clock import ManualClock
from support.store_builder import BEGIN_MS, StoreBuilder


def numbers(store: OfflineStore) -> list[int]:
    return sorted(
        int(message.body)
        for key in store.queues
        for batch in store.messages(key)
        for message in batch.columns.messages()
    )


def growing(root: Path) -> StoreBuilder:
    builder = StoreBuilder(root, log_file_size=4096).records(20).unclean()
    builder.checkpoint(BEGIN_MS, BEGIN_MS, 0)
    return builder


def test_a_view_passes_what_is_damaged_while_it_looks(tmp_path: Path) -> None:
    builder = growing(tmp_path / "s")
    clock = ManualClock(BEGIN_MS)
    with PastDamageStore(builder.write(), clock=clock) as store:
        assert numbers(store) == list(range(20))
        for number in range(20, 24):
            builder.record(body=b"%d" % number, dispatched=False)
        builder.flip_body(21).write()
        assert store.refresh()
        assert numbers(store) == list(range(21))
        clock.advance_ms(2000)
        assert store.refresh()
        assert numbers(store) == [*range(21), 22, 23]
        assert [f.reason for f in store.damage.findings if "bytes are left out" in f.reason]
        builder.record(body=b"24", dispatched=False).write()
        assert store.refresh()
        assert numbers(store) == [*range(21), 22, 23, 24]
        assert not store.refresh()


def test_what_is_being_written_is_waited_for(tmp_path: Path) -> None:
    builder = growing(tmp_path / "s")
    clock = ManualClock(BEGIN_MS)
    with PastDamageStore(builder.write(), clock=clock) as store:
        assert numbers(store) == list(range(20))
        builder.torn_record(60, body=b"20").write()
        for _ in range(3):
            clock.advance_ms(2000)
            assert not store.refresh()
        builder.record(body=b"20", dispatched=False).write()
        assert store.refresh()
        assert numbers(store) == list(range(21))
        assert not store.damage.findings


def test_an_absurd_store_time_does_not_hide_what_follows(tmp_path: Path) -> None:
    builder = growing(tmp_path / "s")
    builder.record(body=b"20", stored=(1 << 63) - 1, dispatched=False)
    for number in range(21, 25):
        builder.record(body=b"%d" % number, stored=BEGIN_MS + number, dispatched=False)
    builder.flip_body(21).write()
    with PastDamageStore(builder.root) as store:
        assert numbers(store) == [*range(21), 22, 23, 24]


def test_units_before_a_damaged_one_are_found(tmp_path: Path) -> None:
    """The search for the first unit that the log still has believes the units it looks at."""
    builder = StoreBuilder(tmp_path / "s", log_file_size=1000, queue_file_units=40).records(40)
    builder.expire(1)
    held = [i for i, p in enumerate(builder.placed) if p.physical_offset >= 1000]
    middle = 20
    builder.lose_units("T", 0, middle, middle + 1).write()
    with PastDamageStore(builder.root) as store:
        assert numbers(store) == [number for number in held if number != middle]
    with OfflineStore(builder.root) as store:
        assert numbers(store) != [number for number in held if number != middle]
