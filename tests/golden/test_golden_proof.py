"""The proof that the demo shows: no byte of an undamaged store is left unexplained."""

from rocketlake.store.offline.proof import prove, total_bytes


def test_no_byte_is_unexplained(opened):
    seen = []
    accounts = {account.family: account for account in prove(opened.view, seen.append)}
    assert set(accounts) == {"commitlog", "consumequeue", "index", "checkpoint"}
    log = accounts["commitlog"]
    size = sum(path.stat().st_size for path in opened.golden.log_files)
    assert log.same + log.filler + log.unexplained == size
    assert log.items >= len(opened.records)
    damage = opened.case.manifest["damage"]
    in_log = [text for text in damage if "commitlog/" in text]
    assert bool(log.unexplained) == bool(in_log), log.detail
    for family in ("consumequeue", "index", "checkpoint"):
        assert accounts[family].unexplained == 0
    index = sum(path.stat().st_size for path in opened.golden.files("index"))
    assert accounts["index"].same == index
    assert sum(seen) == total_bytes(opened.view)
