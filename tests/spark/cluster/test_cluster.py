"""On a cluster all is as it is here: executors got rocketlake by `--py-files`, and may fail."""

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rocketlake
from spark.cluster.hashing import read
from spark.cluster.talking import Cluster

MESSAGES = 3000
PARTS = 4


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of two topics, enough for several parts."""
    return make_store(tmp_path_factory.mktemp("seen") / "broker-a", MESSAGES)


@pytest.fixture(scope="module")
def expected(spark: SparkSession, store: Path) -> dict[str, object]:
    """What a session in this process reads, with the kernel of this process."""
    found = read(spark, options=orders(store))
    assert found["rows"] == MESSAGES - MESSAGES // 3
    return found


def make_store(path: Path, count: int) -> Path:
    with rocketlake.open_store(path) as store:
        for number in range(count):
            store.put(
                rocketlake.Message(
                    topic="orders" if number % 3 else "payments",
                    body=b"%d " % number * 100,
                    tags=f"t{number % 5}",
                    keys=[f"k{number}"],
                )
            )
    return path


def orders(store: Path, **more: str) -> dict[str, str]:
    return {"path": str(store), "topic": "orders", "minPartitions": str(PARTS), **more}


def hindered(store: Path, hindrance: str, marks: Path) -> dict[str, str]:
    return orders(store, hindrance=hindrance, marks=str(marks))


def marked(marks: Path, pattern: str) -> set[str]:
    return {path.name for path in marks.glob(pattern)}


def test_executors_have_the_code_by_py_files_alone_and_the_pure_kernel(cluster: Cluster):
    found = cluster.answer(step="what_executors_have")
    assert found["kernels"] == ["pure"]
    assert all(place.startswith("./rocketlake.zip/") for place in found["places"])
    assert len(found["prefixes"]) == 2  # one environment on each of two executors
    assert found["driver"][0] not in found["prefixes"]
    assert found["driver"][2] == rocketlake.KERNEL


def test_a_read_gives_what_it_gives_here(cluster: Cluster, store: Path, expected):
    assert cluster.answer(step="read", options=orders(store)) == expected


def test_a_path_may_be_relative_to_the_driver(cluster: Cluster, store: Path, expected):
    relative = os.path.relpath(store, cluster.folder)
    assert cluster.answer(step="read", options=orders(Path(relative))) == expected


def test_first_attempts_that_fail_midway(cluster: Cluster, store: Path, expected, tmp_path):
    options = hindered(store, "fail", tmp_path)
    assert cluster.answer(step="read", name="rocketlake_hindered", options=options) == expected
    assert marked(tmp_path, "begun-*-0") == {f"begun-{part}-0" for part in range(PARTS)}
    assert marked(tmp_path, "done-*-0") == set()


def test_speculative_attempts(cluster: Cluster, store: Path, expected, tmp_path):
    options = hindered(store, "dawdle", tmp_path)
    assert cluster.answer(step="read", name="rocketlake_hindered", options=options) == expected
    assert "done-0-1" in marked(tmp_path, "*")  # which the first attempt waits for


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_killed_in_the_middle(cluster: Cluster, store: Path, expected, tmp_path, victim):
    options = hindered(store, "wait", tmp_path)
    found = cluster.answer(step="read_killed", options=options, kill=victim)
    begun = set(found.pop("begun"))
    assert found == expected
    assert {"begun-0-0", "begun-0-1"} <= begun


def test_a_path_that_executors_cannot_see(cluster: Cluster):
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("executors can be given a view of their own by root alone")
    store = make_store(cluster.hidden / "broker-h", 10)
    said = cluster.call(step="read", options={"path": str(store), "topic": "orders"})
    assert "the executor on" in said["error"], said
    assert f"cannot see the store (no store at {store}:" in said["error"]
    assert "\n" not in said["error"]


def test_the_sink_writes_what_executors_staged(
    cluster: Cluster, spark: SparkSession, store: Path, tmp_path
):
    target = {"path": str(tmp_path / "copy"), "stagingPath": str(tmp_path / "staging")}
    cluster.answer(step="write", options=orders(store), target=target)
    with rocketlake.OfflineStore(tmp_path / "copy") as copy:
        found = sorted((message.keys, message.body) for message in copy.messages("orders"))
    with rocketlake.OfflineStore(store) as original:
        wanted = sorted((message.keys, message.body) for message in original.messages("orders"))
    assert found == wanted


def test_a_job_runs_unchanged(cluster: Cluster, store: Path, tmp_path):
    found = cluster.answer(step="archive", store=str(store), directory=str(tmp_path / "archive"))
    assert found["rows"] == MESSAGES
    assert found["told"], "no progress was told"


def test_a_store_is_dispatched_rebuilt_and_verified(cluster: Cluster, tmp_path: Path):
    path = make_store(tmp_path / "kept", 200)
    with rocketlake.open_store(path, dispatch="external") as store:
        for number in range(100):
            assert store.put(rocketlake.Message(topic="more", body=b"x", keys=[f"m{number}"])).is_ok
        assert not (path / "consumequeue" / "more").exists()
        found = cluster.answer(step="job", name="dispatch", store=str(path))
        assert (found["records"], found["units"], found["keys"]) == (100, 100, 100)
        assert len([*(path / "consumequeue" / "more").iterdir()]) == 4
    found = cluster.answer(step="job", name="rebuild", store=str(path))
    counts = (found["records"], found["units"], found["keys"], found["bad_parts"])
    assert counts == (300, 300, 500, 0)  # of 200 messages the tag is a key, too
    found = cluster.answer(step="job", name="verify", store=str(path))
    assert found["faults"] == []
    assert (found["summary"]["records"], found["summary"]["keys"]) == (300, 300)


# --- paths --------------------------------------------------------------------------------------


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path) -> Path:
    """A directory whose name has a space, behind a link; the store in it is `small`."""
    (tmp_path / "real").mkdir()
    place = tmp_path / "a place"
    place.symlink_to("real")
    make_store(place / "small", 30)
    return place


def typed(place: Path, form: str, folder: Path) -> str:
    """A store's path as a person types it in a directory."""
    store = place / "small"
    return {
        "relative": os.path.relpath(store, folder),
        "home": f"~/{os.path.relpath(store, Path.home())}",
        "file": f"file:{store}",
        "uri": store.as_uri(),
    }[form]


COMMANDS = {
    "archive": (["{store}", "{place}/archive"], "30"),
    "compact": (["{store}", "{place}/newest", "--topic", "orders"], "20"),
    "dispatch": (["{store}"], "0 records"),
    "profile": (["{store}"], "30 messages in 2 topics"),
    "rebuild": (["{store}"], "30 records: 30 units"),
    "replay": (["{store}", "{place}/copy", "--topic", "orders"], "20"),
    "verify": (["{store}", "--master", "spark"], "no findings: sound"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_a_relative_path(cluster: Cluster, place: Path, command: str):
    """`verify` and `rebuild` said that the executor cannot see it."""
    words, says = COMMANDS[command]
    store = typed(place, "relative", cluster.folder)
    words = [word.format(store=store, place=Path(store).parent) for word in words]
    found = cluster.answer(step="command", words=[command, *words])
    assert found["code"] == 0, found
    assert says in found["said"]


@pytest.mark.parametrize("form", ["home", "file", "uri"])
def test_a_path_as_people_type_it(cluster: Cluster, place: Path, form: str):
    store = typed(place, form, cluster.folder)
    found = cluster.answer(step="command", words=["verify", store, "--master", "spark"])
    assert (found["code"], "30 records" in found["said"]) == (0, True), found
    found = cluster.answer(step="job", name="rebuild", store=store)
    assert found["records"] == 30
    assert cluster.answer(step="read", options={"path": store, "topic": "orders"})["rows"] == 20


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_that_is_no_directory_is_refused(cluster: Cluster, command: str):
    words = [word.format(store="s3://bucket/store", place="data") for word in COMMANDS[command][0]]
    said = cluster.call(step="command", words=[command, *words])
    assert "'s3://bucket/store': stores and archives are in directories" in said["error"]
    assert said["error"].endswith("not in s3; mount it, or copy it")
