"""Deletion in a store that is written meanwhile."""

from store_bench import open_engine, request


def test_forced_deletion_ends_where_the_log_ended_when_it_began(tmp_path, monkeypatch):
    """A writer makes new files as fast as the old ones go."""
    with open_engine(tmp_path, delete_file_batch_max=1) as store:
        for _ in range(50):
            assert store.put(request(body=bytes(1000))).is_ok
        files, retention = len(store.log.files.files), store.retention
        rounds = []
        monkeypatch.setattr(retention, "_delete", lambda *_, **__: rounds.append(1) or 1)
        monkeypatch.setattr(retention, "_wait", lambda _: len(rounds) > 1000)
        store.delete_expired(force=True)
        assert len(rounds) == files - 1 > 2
