"""JSON of our own files is read strictly, and reads back equal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rss_rl import json_files
from rss_rl.errors import CheckpointError
from rss_rl.json_files import read_json


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', "[]", "{", "\xff"])
def test_json_is_read_strictly(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"file\.json: unreadable: .*\. Do this"):
        read_json(path, remedy="Do this")


def test_a_missing_json_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"file\.json: missing\. Do this"):
        read_json(tmp_path / "file.json", remedy="Do this")


def test_a_file_replaced_after_its_size_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kind and size are those of the file that is open, not of one that had its name before."""
    path, before = tmp_path / "file.json", tmp_path / "before.json"
    path.write_text('{"a": "more than ten bytes"}')
    before.write_text("{}")
    monkeypatch.setattr(json_files, "MAX_JSON_BYTES", 10)
    status = os.stat

    def earlier(file: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        return status(before if file == path else file, *args, **kwargs)

    monkeypatch.setattr(os, "stat", earlier)
    with pytest.raises(CheckpointError, match="larger than 10 bytes"):
        read_json(path, remedy="Do this")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file.json")
    with pytest.raises(CheckpointError, match="not a plain file"):
        read_json(tmp_path / "file.json", remedy="Do this")


def test_a_directory_is_refused_and_not_held_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(CheckpointError, match="not a plain file"):
        read_json(tmp_path, remedy="Do this")
    assert len(os.listdir("/proc/self/fd")) == before
