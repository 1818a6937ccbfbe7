"""Files that no crash leaves, but people, tools and other disks do: an error, or a sound store."""

import os
from pathlib import Path

import pytest
from by_hand import by_hand
from crash_model import Sent
from engine_run import EngineRun
from platter import Image
from recovering import LATER_MS, check_keys, read_all
from sim_disk import SimDisk
from sim_store import ROOT, SIZES, open_on

from rocketlake.errors import FileAccessError, FileSizeError
from rocketlake.store.api import GetRequest
from support.engine import open_engine, request
from support.manual_clock import ManualClock

STEPS = 40
LOG_SIZE = SIZES["mapped_file_size_commit_log"]


@pytest.fixture(params=["clean", "unclean"])
def made(request) -> tuple[Image, list[Sent]]:
    """A store of a few files of each kind, closed or killed, and what is in it."""
    with by_hand() as hands:
        run = EngineRun("sync", hands, "odd files")
        for name in run.script(STEPS):
            getattr(run, name)()
        for _ in range(30):
            run.put()
        run.store.catch_up()
        if request.param == "clean":
            run.store.close()
        image = run.disk.kept()
        run.store.close()
    return image, run.sent


def files_of(image: Image, family: str) -> list[Path]:
    return sorted(path for path in image.contents() if path.relative_to(ROOT).parts[0] == family)


def changed(image: Image, path: Path, data: bytes | None) -> Image:
    """The image with other bytes in a file, or without it."""
    names = dict(image.names)
    number = names.pop(path, None) or max(image.files) + 1
    if data is None:
        return Image(image.files, names)
    return Image({**image.files, number: data}, {**names, path: number})


def opened(image: Image):
    clock = ManualClock(LATER_MS)
    return open_on(SimDisk(image, now_ms=clock.now_ms), clock, "sync")


def check_sound(image: Image, sent: list[Sent]) -> None:
    """Everything is there, and the store goes on."""
    with by_hand(), opened(image) as store:
        assert read_all(store) == sent
        check_keys(store, sent)
        assert store.put(request("T", 0, b"new", keys=["new"])).is_ok
        assert read_all(store)[:-1] == sent


def check_refused(image: Image, path: Path, sizes: tuple[int, int]) -> None:
    with by_hand(), pytest.raises(FileSizeError) as refused:
        opened(image)
    assert str(path) in str(refused.value)
    assert (refused.value.size, refused.value.expected) == sizes


@pytest.mark.parametrize("family", ["commitlog", "consumequeue", "index"])
@pytest.mark.parametrize("which", [0, -1])
def test_wrong_size_is_refused(made, family, which):
    """Also by one byte, and with the sizes in the error."""
    image, _ = made
    path = files_of(image, family)[which]
    data = image.contents()[path]
    for odd in (data[:-1], data + b"\0"):
        check_refused(changed(image, path, odd), path, (len(odd), len(data)))


def test_empty_file_behind_the_last_of_the_log(made):
    image, sent = made
    last = files_of(image, "commitlog")[-1]
    following = last.with_name(f"{int(last.name) + LOG_SIZE:020d}")
    check_sound(changed(image, following, b""), sent)


def test_zeros_behind_the_last_of_the_log(made):
    image, sent = made
    last = files_of(image, "commitlog")[-1]
    following = last.with_name(f"{int(last.name) + LOG_SIZE:020d}")
    check_sound(changed(image, following, bytes(LOG_SIZE)), sent)


def test_empty_last_queue_file(made):
    """Its units are lost; the log has them."""
    image, sent = made
    check_sound(changed(image, files_of(image, "consumequeue")[-1], b""), sent)


@pytest.mark.parametrize("content", [b"", None], ids=["empty", "missing"])
def test_last_index_file_is_made_again(made, content):
    image, sent = made
    check_sound(changed(image, files_of(image, "index")[-1], content), sent)


@pytest.mark.parametrize("name", ["checkpoint", "abort.bak", "lock"])
@pytest.mark.parametrize("content", [b"", None], ids=["empty", "missing"])
def test_small_files_are_not_needed(made, name, content):
    image, sent = made
    check_sound(changed(image, ROOT / name, content), sent)


@pytest.mark.parametrize("family", ["consumequeue", "index"])
def test_family_that_is_missing_is_made_again(made, family):
    image, sent = made
    for path in files_of(image, family):
        image = changed(image, path, None)
    check_sound(image, sent)


def test_log_file_that_is_missing_in_the_middle(made):
    """The messages of the other files are there; nothing else is returned in the place of these."""
    image, sent = made
    missing = files_of(image, "commitlog")[1]
    by_place = {(one.key, one.queue_offset): one for one in sent}
    with by_hand(), opened(changed(image, missing, None)) as store:
        found = set()
        for key, queue in store.queues.items():
            offset = queue.min_offset
            while offset < queue.max_offset:
                result = store.get(
                    GetRequest(
                        topic=key.topic, queue_id=key.queue_id, offset=offset, max_messages=8
                    )
                )
                for message in result.messages:
                    place = key, message.queue_offset
                    assert by_place[place].body == message.body
                    found.add(place)
                assert result.next_offset > offset
                offset = result.next_offset
        assert 0 < len(found) < len(sent)
        assert store.put(request("T", 0, b"new")).is_ok


# --- directories and calls -----------------------------------------------------------------------

CHANGES = frozenset(
    {"create", "write", "allocate", "truncate", "mkdir", "rename", "unlink", "rmdir", "open"}
)


def test_directory_that_may_not_be_written(made):
    """The error names the path, and no byte is other than before."""
    image, sent = made

    def forbid(what: str, path: Path) -> None:
        if what in CHANGES:
            raise FileAccessError(str(path), f"cannot {what}: Read-only file system")

    disk = SimDisk(image, before=forbid)
    with by_hand(), pytest.raises(FileAccessError, match=r"/store/.*Read-only"):
        open_on(disk, ManualClock(LATER_MS), "sync")
    assert disk.kept().contents() == image.contents()
    check_sound(image, sent)


def test_writes_that_are_cut_short(tmp_path, monkeypatch):
    """The system may write less than it is given; the rest follows."""
    write = os.pwrite
    calls = []

    def short(descriptor, data, position):
        calls.append(len(data))
        return write(descriptor, bytes(data)[:7], position)

    monkeypatch.setattr(os, "pwrite", short)
    buffers = {"transient_store_pool_enable": True, "transient_store_pool_size": 3}
    with open_engine(tmp_path, **buffers) as store:
        for number in range(20):
            assert store.put(request("T", 0, b"%d " % number * 40)).is_ok
        store.flush()
    assert any(size > 7 for size in calls)
    with open_engine(tmp_path, **buffers) as store:
        bodies = [one.body for one in read_all(store)]
        assert bodies == [b"%d " % number * 40 for number in range(20)]
