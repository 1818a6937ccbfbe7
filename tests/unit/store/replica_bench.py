"""A primary and a replica that is fed with its bytes."""

from store_bench import read, request


def fill(store, count=60, topics=("T", "U")):
    for number in range(count):
        store.put(request(topics[number % len(topics)], b"%04d" % number * 60, number % 3))


def log_bytes(store, start=None, end=None):
    """Return all bytes of a log, from file to file."""
    where = store.log_bounds()[0] if start is None else start
    data = b""
    end = store.log.wrote_where if end is None else end
    while where < end:
        with store.log.slice(where) as held:
            data += bytes(held.view)
            where += held.size
    return data[: end - (store.log_bounds()[0] if start is None else start)]


def send(data, store, where=0, size=1 << 30):
    """Append bytes to a replica in pieces."""
    for at in range(0, len(data), size):
        done = store.append_raw(where + at, data[at : at + size])
        assert done.is_whole, done.reason
        assert done.end == where + min(at + size, len(data))


def bodies(store, topic="T"):
    return [[m.body for m in read(store, topic, queue_id)] for queue_id in range(3)]
