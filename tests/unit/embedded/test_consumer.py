"""A consumer: what it hands out, what it commits, what it tells."""

import pytest
from embedded_fakes import Bench, bodies, stored

from rocketlake.embedded.consumer.prefetcher import Missed
from rocketlake.embedded.selection import Selection
from rocketlake.errors import StoreClosedError
from rocketlake.filters.tags import TagFilter
from rocketlake.format.batch import BatchEntry, encode_entries
from rocketlake.format.record import encode_properties
from rocketlake.model import compression, flags
from rocketlake.model.queues import QueueKey


@pytest.fixture
def bench():
    return Bench()


# --- order and turns ------------------------------------------------------------------------------


def test_iteration_hands_out_all_in_order_and_ends_at_the_timeout(bench):
    bench.engine.add(100)
    assert bodies(list(bench.consumer())) == [f"0:{n}" for n in range(100)]
    assert bench.progress_of() == {0: 100}


def test_iteration_lets_queues_take_turns(bench):
    bench.queue_count = 3
    bench.engine.add(3, queue_id=0)
    bench.engine.add(1, queue_id=1)
    bench.engine.add(2, queue_id=2)
    assert bodies(list(bench.consumer())) == ["0:0", "1:0", "2:0", "0:1", "2:1", "0:2"]


def test_second_consumer_of_the_group_goes_on_where_the_first_stopped(bench):
    bench.engine.add(3)
    assert len(list(bench.consumer())) == 3
    bench.engine.add(2)
    assert bodies(list(bench.consumer())) == ["0:3", "0:4"]
    assert len(list(bench.consumer("other"))) == 5


def test_message_that_dispatch_owes_is_seen(bench):
    bench.engine.is_held_back = True
    bench.engine.add(2)
    assert bodies(list(bench.consumer())) == ["0:0", "0:1"]
    bench.engine.add(1)
    assert bodies(bench.consumer().poll()) == ["0:2"]


# --- committing -----------------------------------------------------------------------------------


def test_message_is_committed_when_the_next_one_is_asked_for(bench):
    bench.engine.add(3)
    consumer = bench.consumer()
    next(consumer)
    assert bench.progress_of() == {0: 0}
    next(consumer)
    assert bench.progress_of() == {0: 1}


def test_loop_that_raises_leaves_its_message_uncommitted(bench):
    bench.engine.add(3)
    consumer = bench.consumer()

    def work() -> None:
        for message in consumer:
            if message.queue_offset == 1:
                raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        work()
    assert bench.progress_of() == {0: 1}
    assert bodies(list(consumer)) == ["0:1", "0:2"]
    assert bench.progress_of() == {0: 3}


def test_loop_left_by_break_hands_out_its_message_again(bench):
    bench.engine.add(3)
    consumer = bench.consumer()
    for message in consumer:
        if message.queue_offset == 2:
            break
    consumer.close()
    assert bench.progress_of() == {0: 2}
    assert bodies(list(bench.consumer())) == ["0:2"]


def test_break_on_the_last_message_of_a_batch_hands_it_out_again(bench):
    bench.engine.add(2)
    consumer = bench.consumer(batch=1)
    for _ in consumer:
        break
    assert bodies(list(consumer)) == ["0:0", "0:1"]


def test_commit_in_the_loop_keeps_the_message_in_hand(bench):
    bench.engine.add(3)
    consumer = bench.consumer()
    for _ in consumer:
        consumer.commit()
        break
    assert bench.progress_of() == {0: 1}
    assert bodies(list(consumer)) == ["0:1", "0:2"]


def test_without_auto_commit_nothing_is_committed_until_asked(bench):
    bench.engine.add(3)
    consumer = bench.consumer(auto_commit=False)
    assert len(list(consumer)) == 3
    assert bench.progress_of() == {0: 0}
    consumer.commit()
    assert bench.progress_of() == {0: 3}


def test_poll_commits_nothing_by_itself(bench):
    bench.engine.add(5)
    consumer = bench.consumer()
    assert bodies(consumer.poll(2)) == ["0:0", "0:1"]
    assert bodies(consumer.poll(2)) == ["0:2", "0:3"]
    assert bench.progress_of() == {0: 0}
    consumer.commit()
    assert bench.progress_of() == {0: 4}
    consumer.poll()
    consumer.close()
    assert bodies(bench.consumer().poll()) == ["0:4"]


def test_poll_returns_as_many_as_asked_for_over_several_batches(bench):
    bench.engine.add(100)
    assert len(bench.consumer(batch=8).poll(50)) == 50


def test_poll_refuses_to_return_nothing(bench):
    with pytest.raises(ValueError, match="max_messages = 0"):
        bench.consumer().poll(0)


# --- start ----------------------------------------------------------------------------------------


def test_start_first_is_the_first_there_is(bench):
    bench.engine.add(5)
    bench.engine.expire(2)
    consumer = bench.consumer(start="first")
    assert bodies(list(consumer)) == ["0:2", "0:3", "0:4"]
    assert not consumer.missed


def test_start_last_sees_only_what_comes(bench):
    bench.engine.is_held_back = True
    bench.engine.add(5)
    consumer = bench.consumer(start="last")
    bench.engine.add(1)
    assert bodies(list(consumer)) == ["0:5"]


def test_start_last_is_written_down_at_once(bench):
    """A consumer that came and went without a message must not lose those that came meanwhile."""
    bench.engine.add(5)
    bench.consumer(start="last").close()
    bench.engine.add(1)
    assert bodies(list(bench.consumer(start="last"))) == ["0:5"]


def test_start_at_a_time(bench):
    for time in (1000, 2000, 3000):
        bench.engine.add(1, store_timestamp=time)
    assert bodies(list(bench.consumer(start=2000))) == ["0:1", "0:2"]


def test_start_counts_only_where_the_group_has_not_been(bench):
    bench.engine.add(2)
    list(bench.consumer())
    bench.engine.add(1)
    assert bodies(list(bench.consumer(start="last"))) == ["0:2"]


def test_queue_added_later_is_read_from_its_first_message(bench):
    bench.engine.add(1)
    consumer = bench.consumer(start="last")
    bench.queue_count = 2
    bench.engine.add(1, queue_id=1)
    bench.groups.topic_changed("orders")
    assert bodies(list(consumer)) == ["1:0"]


def test_topic_made_later_is_consumed(bench):
    bench.queue_count = 0
    consumer = bench.consumer(start="last")
    assert consumer.assigned == []
    assert consumer.poll() == []
    bench.queue_count = 2
    bench.groups.topic_changed("orders")
    bench.engine.add(1, queue_id=1)
    assert bodies(consumer.poll()) == ["1:0"]


# --- where it stands ------------------------------------------------------------------------------


def test_position_lag_and_assigned(bench):
    bench.queue_count = 2
    bench.engine.add(3)
    bench.engine.add(1, queue_id=1)
    consumer = bench.consumer()
    assert (consumer.assigned, consumer.lag()) == ([0, 1], 4)
    next(consumer)
    next(consumer)
    assert (consumer.position(0), consumer.position(1), consumer.lag()) == (1, 1, 2)
    with pytest.raises(ValueError, match=r"queue 5 of orders is not assigned.*it has \[0, 1\]"):
        consumer.position(5)


def test_seek_back_and_forth(bench):
    bench.engine.add(10)
    consumer = bench.consumer(auto_commit=False)
    consumer.poll(5)
    consumer.seek(0, 1)
    assert bodies(consumer.poll(2)) == ["0:1", "0:2"]
    consumer.seek(0, 8)
    assert bodies(list(consumer)) == ["0:8", "0:9"]
    with pytest.raises(ValueError, match="offset = -1"):
        consumer.seek(0, -1)
    with pytest.raises(ValueError, match="queue 1 of orders is not assigned"):
        consumer.seek(1, 0)


def test_seek_in_a_loop_forgets_the_message_in_hand(bench):
    bench.engine.add(10)
    consumer = bench.consumer()
    assert [next(consumer).queue_offset for _ in range(4)] == [0, 1, 2, 3]
    consumer.seek(0, 1)
    assert next(consumer).queue_offset == 1
    assert bench.progress_of() == {0: 1}
    assert 4 not in [offset for _, offset in bench.progress.commits]


def test_seek_to_time(bench):
    bench.queue_count = 2
    for queue_id in (0, 1):
        for time in (1000, 2000):
            bench.engine.add(1, queue_id=queue_id, store_timestamp=time)
    consumer = bench.consumer()
    assert len(list(consumer)) == 4
    consumer.seek_to_time(2000)
    assert sorted(bodies(list(consumer))) == ["0:1", "1:1"]


def test_reset_reaches_a_running_consumer(bench):
    bench.engine.add(10)
    consumer = bench.consumer()
    assert [next(consumer).queue_offset for _ in range(4)] == [0, 1, 2, 3]
    bench.progress.commit("orders", "g", 0, 8)
    bench.groups.assignment("g", "orders").reset_offsets({0: 8})
    assert bodies(list(consumer)) == ["0:8", "0:9"]
    assert 4 not in [offset for _, offset in bench.progress.commits]


# --- progress out of bounds -----------------------------------------------------------------------


def test_progress_below_the_queue_goes_to_its_begin_and_says_what_was_missed(bench, caplog):
    bench.engine.add(10)
    bench.progress.commit("orders", "g", 0, 2)
    bench.engine.expire(6)
    consumer = bench.consumer()
    assert bodies(list(consumer)) == ["0:6", "0:7", "0:8", "0:9"]
    assert consumer.missed == [Missed(0, 2, 6)]
    assert [missed.count for missed in consumer.missed] == [4]
    assert caplog.text.count("group=g topic=orders queue=0 count=4 from=2 to=6") == 1


def test_progress_above_the_queue_goes_to_its_end(bench, caplog):
    bench.engine.add(3)
    bench.progress.commit("orders", "g", 0, 77)
    consumer = bench.consumer()
    assert consumer.poll() == []
    assert "from=77 to=3" in caplog.text
    bench.engine.add(1)
    assert bodies(consumer.poll()) == ["0:3"]
    assert not consumer.missed


def test_progress_in_an_empty_queue_begins_anew(bench):
    bench.progress.commit("orders", "g", 0, 7)
    consumer = bench.consumer()
    assert consumer.poll() == []
    bench.engine.add(1)
    assert bodies(consumer.poll()) == ["0:0"]


# --- filters, damage, batches ---------------------------------------------------------------------


def test_tags_are_chosen_and_the_rest_counts_as_consumed(bench):
    for number in range(200):
        bench.engine.add(1, tags="paid" if number % 50 == 0 else "open")
    consumer = bench.consumer(tags="paid || refunded")
    assert [m.queue_offset for m in consumer] == [0, 50, 100, 150]
    assert bench.progress_of() == {0: 200}
    assert consumer.lag() == 0


def test_sql_is_chosen(bench):
    for amount in ("5", "50", "500"):
        bench.engine.add(1, extra={"amount": amount})
    assert [m.queue_offset for m in bench.consumer(sql="amount > 10")] == [1, 2]


def test_filter_that_leaves_everything_out_moves_on(bench):
    bench.engine.add(500, tags="open")
    assert list(bench.consumer(tags="paid")) == []
    assert bench.progress_of() == {0: 500}


def test_corrupt_record_is_stepped_over_and_listed(bench):
    bench.engine.add(3)
    bench.engine.corrupt[QueueKey("orders", 0)] = {1}
    consumer = bench.consumer()
    assert bodies(list(consumer)) == ["0:0", "0:2"]
    assert [unit.queue_offset for unit in consumer.corrupt] == [1]


def inner_batch(bench, tags: list[str], *, sys_flag: int = 0, body: bytes | None = None) -> None:
    """Put one record that holds several messages."""
    entries = [
        BatchEntry(f"inner {n}".encode(), encode_properties({"TAGS": tag}, True))
        for n, tag in enumerate(tags)
    ]
    key = QueueKey("orders", 0)
    at = bench.engine.queue_bounds(key)[1]
    message = stored(
        queue_offset=at,
        body=encode_entries(entries) if body is None else body,
        sys_flag=flags.INNER_BATCH | flags.NEED_UNWRAP | sys_flag,
        extra={"INNER_NUM": str(len(tags)), "INNER_BASE": str(at)},
    )
    # Each message of the batch has a place in the queue; all places show the same record.
    bench.engine.queues[key] += [message] * len(tags)


def test_inner_batch_is_taken_apart(bench):
    inner_batch(bench, ["a", "b", "a"])
    bench.engine.add(1)
    found = list(bench.consumer())
    assert bodies(found) == ["inner 0", "inner 1", "inner 2", "0:3"]
    assert [m.queue_offset for m in found] == [0, 1, 2, 3]
    assert [m.tags for m in found[:3]] == ["a", "b", "a"]
    assert not found[0].sys_flag & flags.INNER_BATCH
    assert bench.progress_of() == {0: 4}


def test_inner_batch_goes_on_in_its_middle(bench):
    inner_batch(bench, ["a", "b", "a"])
    for message in bench.consumer():
        if message.queue_offset == 2:
            break
    assert bench.progress_of() == {0: 2}
    assert bodies(list(bench.consumer())) == ["inner 2"]


def test_inner_batch_messages_are_filtered_by_their_own_tags(bench):
    inner_batch(bench, ["a", "b", "a"])
    # The record has no tag: a store that filters by the record's own would leave it out.
    selection = Selection(TagFilter.parse("a"), None)
    assert bodies(list(bench.consumer(selection=selection))) == ["inner 0", "inner 2"]


def test_compressed_inner_batch_is_inflated(bench):
    entries = [BatchEntry(b"inner 0"), BatchEntry(b"inner 1")]
    packed = compression.deflate(encode_entries(entries), compression.Compression.ZLIB)
    inner_batch(bench, ["a", "b"], sys_flag=flags.COMPRESSED, body=packed)
    assert bodies(list(bench.consumer())) == ["inner 0", "inner 1"]


def test_inner_batch_that_is_none_is_listed_as_corrupt(bench):
    inner_batch(bench, ["a"], body=b"nonsense")
    bench.engine.add(1)
    consumer = bench.consumer()
    assert bodies(list(consumer)) == ["0:1"]
    assert "cannot be unpacked" in consumer.corrupt[0].reason


# --- closing --------------------------------------------------------------------------------------


def test_closed_consumer_ends_loops_and_refuses_the_rest(bench):
    bench.engine.add(3)
    consumer = bench.consumer()
    seen = []
    for message in consumer:
        seen.append(message)
        consumer.close()
    assert len(seen) == 1
    assert bench.progress_of() == {0: 0}
    assert list(consumer) == []
    assert next(consumer, None) is None
    for use in (consumer.poll, consumer.commit, consumer.lag, lambda: consumer.seek(0, 1)):
        with pytest.raises(StoreClosedError, match="group='g' topic='orders' closed"):
            use()


def test_close_of_the_store_closes_its_consumers(bench):
    bench.engine.add(1)
    consumer = bench.consumer()
    bench.groups.close()
    assert consumer.is_closed
    with pytest.raises(StoreClosedError):
        consumer.poll()


def test_store_that_closes_under_a_reader_ends_the_loop(bench):
    bench.engine.add(1)

    def close() -> None:
        bench.groups.close()
        bench.engine.is_closed = True

    consumer = bench.consumer()
    bench.engine.before_get = close
    assert list(consumer) == []


def test_reader_that_is_closed_alone_is_an_error(bench):
    bench.engine.is_closed = True
    with pytest.raises(StoreClosedError):
        list(bench.consumer())


def test_consumer_says_what_it_is(bench):
    bench.queue_count = 2
    with bench.consumer("billing") as consumer:
        assert repr(consumer) == "<Consumer group='billing' topic='orders' queues=[0, 1]>"
        assert (consumer.group, consumer.topic) == ("billing", "orders")
    assert repr(consumer) == "<Consumer group='billing' topic='orders' closed>"


# --- a poll that was interrupted ------------------------------------------------------------------


def poll_interrupted(consumer, monkeypatch):
    """Have a poll take messages and end by an exception, as of a signal handler."""
    hand_out, left = consumer._prefetcher.hand_out, [None] * 3

    def interrupted():
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return hand_out()

    with monkeypatch.context() as patched:
        patched.setattr(consumer._prefetcher, "hand_out", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(10)


def test_interrupted_poll_has_taken_nothing(bench, monkeypatch):
    bench.engine.add(20)
    consumer = bench.consumer()
    assert len(consumer.poll(5)) == 5
    poll_interrupted(consumer, monkeypatch)
    assert consumer.position(0) == 5
    assert consumer.lag() == 15
    assert bodies(consumer.poll(2)) == ["0:5", "0:6"]


def test_seek_behind_an_interrupted_poll_holds(bench, monkeypatch):
    """The next poll went back to where the interrupted one had begun."""
    bench.engine.add(20)
    consumer = bench.consumer()
    assert len(consumer.poll(5)) == 5
    poll_interrupted(consumer, monkeypatch)
    consumer.seek(0, 12)
    assert bodies(consumer.poll(2)) == ["0:12", "0:13"]
    poll_interrupted(consumer, monkeypatch)
    consumer._assignment.reset_offsets({0: 1})  # as reset_offsets does
    consumer.look()
    assert bodies(consumer.poll(2)) == ["0:1", "0:2"]
