"""Every release finds every message that a killed process of ours acknowledged.

The log files are small, so that RocketMQ 5.5, which reads the last ten of them, sees little.
"""

import json
import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import killed_writing
import pytest
from killed_writing import SIZES, TOPIC, body_of
from reference_store import VERSIONS, ReferenceStore

pytestmark = [pytest.mark.interop, pytest.mark.crash, pytest.mark.usefixtures("reference")]

READY_S = 60
MOMENTS = (90, 358, 700, 1501)


def write_and_be_killed(store: Path, **asked: Any) -> list[str]:
    """Return what the process said before it died."""
    command = [sys.executable, killed_writing.__file__, str(store), json.dumps(asked)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=environment, timeout=READY_S, check=False
    )
    assert ended.returncode < 0, "the process was to be killed"
    assert (store / "abort").exists()
    return ended.stdout.splitlines()


def as_spec(path: Path) -> Path:
    path.write_text(json.dumps({"options": SIZES, "messages": []}), encoding="utf-8")
    return path


def lost(acknowledged: dict[Path, list[str]], version: str, spec: Path) -> list[str]:
    """Return what RocketMQ does not read, or reads elsewhere."""
    problems = []
    for store, answer in ReferenceStore(version).dump([*acknowledged], spec).items():
        assert answer.loads, answer.error
        assert not answer.missing
        found = {
            (line["unit"]["queueId"], line["unit"]["queueOffset"]): b64decode(line["body"])
            for line in answer.messages
            if line["unit"]["topic"] == TOPIC
        }
        for place, body in found.items():
            if body != body_of(*place):
                problems.append(f"{store.name}: another message at {place}")
        wanted = {tuple(map(int, line.split())) for line in acknowledged[store]}
        if lacking := wanted - found.keys():
            problems.append(f"{store.name}: {len(lacking)} of {len(wanted)} are lost")
    return problems


@pytest.mark.parametrize("version", VERSIONS)
def test_killed_store_has_every_acknowledged_message(tmp_path: Path, version: str):
    acknowledged = {
        (store := tmp_path / f"{flush}-{puts}"): write_and_be_killed(
            store, version=version, puts=puts, flush=flush
        )
        for flush, moments in (("ASYNC_FLUSH", MOMENTS), ("SYNC_FLUSH", MOMENTS[1:2]))
        for puts in moments
    }
    assert [len(lines) for lines in acknowledged.values()] == [*MOMENTS, MOMENTS[1]]
    problems = lost(acknowledged, version, as_spec(tmp_path / "spec.json"))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("version", VERSIONS)
def test_killed_store_whose_dispatch_stood_still(tmp_path: Path, version: str):
    """Puts end before the log is longer than what 5.5 reads of it."""
    store = tmp_path / "stuck"
    *acknowledged, last = write_and_be_killed(
        store, version=version, puts=0, flush="ASYNC_FLUSH", stuck_at=60
    )
    assert last.startswith("refused CREATE_MAPPED_FILE_FAILED")
    assert "queues lack" in last
    assert len(acknowledged) > 200, "puts wait for dispatch too soon"
    problems = lost({store: acknowledged}, version, as_spec(tmp_path / "spec.json"))
    assert not problems, "\n".join(problems)
