"""JSON of our own files is read strictly, and reads back equal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file.json")
    with pytest.raises(CheckpointError, match="not a plain file"):
        read_json(tmp_path / "file.json", remedy="Do this")
