"""A file is all old or all new, and JSON is read strictly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rss_rl.errors import CheckpointError
from rss_rl.runtime.atomic import read_json, replace_file


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    replace_file(path, "old")
    replace_file(path, "new")
    assert path.read_text() == "new"

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            with pytest.raises(OSError, match="No space"):
                replace_file(path, "newer")
        assert path.read_text() == "new"
        assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', "[]", "{", "\xff"])
def test_json_is_read_strictly(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"file\.json: unreadable: .*\. Do this"):
        read_json(path, remedy="Do this")


def test_a_missing_json_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"file\.json: missing\. Do this"):
        read_json(tmp_path / "file.json", remedy="Do this")
