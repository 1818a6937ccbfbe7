"""Archives in tables of Delta and Iceberg, with the jars that fit: each message once over kills."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from archive_parts import GrowingStore
from lake_jars import jars_of

from rocketlake.errors import ConfigError
from rocketlake.spark.jobs import ArchiveSettings, plan_archive

HERE = Path(__file__).resolve().parent


def step(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a step in a process of its own: it has a session of its own."""
    return subprocess.run(
        [sys.executable, str(HERE / "lake_archive.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)},
    )


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_each_message_is_in_the_table_once(table_format: str, tmp_path: Path) -> None:
    jars = jars_of(table_format, tmp_path / "jars")
    killed = step(table_format, jars, tmp_path, "killed")
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    manifest = json.loads((tmp_path / "archive" / "_manifest.json").read_text())
    assert manifest["pending"]["run"] == 1
    rest = step(table_format, jars, tmp_path, "rest")
    assert rest.returncode == 0, rest.stderr[-3000:]
    said = json.loads(rest.stdout.splitlines()[-1])
    assert said["after the kill"] == 60, "the killed run was found by its mark"
    assert said["failed"] == "killed"
    assert said["after the failure"] == 20
    assert said["last"] == 10
    assert "it is an older copy" in said["older manifest"]
    assert said["rows"] == said["distinct"] == said["bodies"] == 230
    assert said["runs"] == [[1, 100], [2, 60], [3, 40], [4, 20]]
    assert said["files"] == 0


def test_options_that_do_not_go_with_marks_are_refused(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "broker-a")
    store.grow(4)
    for table_format, options, text in (
        ("iceberg", {}, r"give it as option table=CATALOG\.DATABASE\.TABLE"),
        ("delta", {"txnAppId": "x"}, "option txnAppId: the archive marks its runs with it"),
        ("delta", {"usermetadata": "x"}, "option userMetadata: the archive marks"),
    ):
        settings = ArchiveSettings(format=table_format, table_options=options)
        with pytest.raises(ConfigError, match=text):
            plan_archive(store.path, tmp_path / "archive", settings)
