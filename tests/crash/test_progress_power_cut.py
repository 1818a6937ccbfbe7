"""A group commits, the table is written, the power goes: it skips nothing that was put later."""

import pytest
from by_hand import by_hand
from embedded_run import open_with
from platter import Platter, Whole
from sim_disk import EMPTY, SimDisk
from sim_store import MODES

from rocketlake.model.message import Message
from support.manual_clock import ManualClock

TOPIC, GROUP = "Orders", "billing"
# What a reader sees before it is on the disk, where the put has to wait for that.
SEES_ALL = {"flush_disk_type": "SYNC_FLUSH", "read_un_committed": True}
WAYS = {**MODES, "sync, read before": SEES_ALL}
FATES = {
    "all lost": lambda: Whole(pages=False, names=False),
    "only names": lambda: Whole(pages=False, names=True),
    "all kept": lambda: Whole(pages=True, names=True),
}


def put(store, first, count):
    for number in range(first, first + count):
        message = Message(topic=TOPIC, body=b"%05d" % number)
        assert store.put_async(message, 0) is not None


def consume(store):
    with store.consumer(GROUP, TOPIC, timeout=0) as consumer:
        found = [message.body for message in consumer.poll(200)]
        consumer.commit()
    return found


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("way", sorted(WAYS))
def test_group_gets_every_message_that_is_put_after_a_power_cut(way, fate):
    """Of 120 messages 100 were flushed and 120 consumed; of 60 new ones the group gets 60."""
    clock = ManualClock()
    disk = SimDisk(now_ms=clock.now_ms)
    with by_hand() as hands:
        store = open_with(disk, clock, WAYS[way])
        store.create_topic(TOPIC, 1)
        put(store, 0, 100)
        store.flush()
        put(store, 100, 20)
        assert len(consume(store)) == 120
        hands.run("table-keeper")
        platter = Platter(EMPTY)
        disk.look()
        for effect in disk.journal:
            platter.apply(effect)
        store.close()
        left = SimDisk(platter.crash(FATES[fate]()), now_ms=clock.now_ms)
        store = open_with(left, clock, WAYS[way])
        end = store.max_offset(TOPIC, 0)
        assert end >= 100
        # The table was written behind the records that it speaks of: nothing has to be corrected.
        assert not [note for note in store.recovery.notes if "group" in note]
        put(store, 1000, 60)
        assert store.max_offset(TOPIC, 0) == end + 60
        found = consume(store)
        assert found[-60:] == [b"%05d" % number for number in range(1000, 1060)]
        store.close()
