"""Paths as people type them: homes, spaces, links, `file:`, and schemes that are refused."""

from pathlib import Path

import pytest

from rocketlake.errors import ConfigError
from rocketlake.files.local_path import absolute_path, local_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data/a store", "/data/a store"),
        ("data/store", "data/store"),
        ("a:b=c", "a:b=c"),
        ("file:/data/store", "/data/store"),
        ("file:///data/a%20store", "/data/a store"),
        ("file:/data/a store", "/data/a store"),
        ("FILE://localhost/data", "/data"),
    ],
)
def test_what_a_text_means(text, path):
    assert local_path(text) == Path(path)


def test_relative_paths_are_those_of_this_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_path("data/store") == tmp_path / "data" / "store"
    assert absolute_path(Path()) == tmp_path


def test_a_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute_path("~/store") == tmp_path / "store"


def test_links_stay(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert absolute_path(tmp_path / "link") == tmp_path / "link"


@pytest.mark.parametrize(
    "text", ["s3://bucket/store", "hdfs://host:9000/store", "file://nas/data", "s3:/a"]
)
def test_other_schemes_are_refused(text):
    with pytest.raises(
        ConfigError, match=f"{text!r}: stores .* not in {text.partition(':')[0]}; mount it"
    ):
        local_path(text)
