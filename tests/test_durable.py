"""Whenever a replacement is killed, the old directory or the new one is whole, and is found."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rss_rl.durable import aside_of, put_back, remove_unfinished, replace_file, swap_in

KILLED = """
import os, sys
from pathlib import Path
from rss_rl.durable import swap_in

left = int(sys.argv[1])

def counted(call):
    def act(*arguments, **options):
        global left
        if left == 0:
            os._exit(9)
        left -= 1
        return call(*arguments, **options)
    return act

os.replace, os.unlink = counted(os.replace), counted(os.unlink)
swap_in(Path("staging"), Path("out").absolute())
"""
PIECES = ("a", "b", "c")


def fill(folder: Path, text: str) -> None:
    folder.mkdir()
    for name in PIECES:
        (folder / name).write_text(text)


def content(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in PIECES if (folder / name).exists()]


@pytest.mark.parametrize("calls", [0, 1, 2, 4, 5])
def test_a_kill_leaves_one_of_them_whole(
    calls: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    fill(out, "old")
    fill(tmp_path / "staging", "new")
    done = subprocess.run([sys.executable, "-c", KILLED, str(calls)], cwd=tmp_path)
    assert done.returncode == (9 if calls < 5 else 0)  # two renames, three files of the old one
    with caplog.at_level(logging.WARNING, "rss_rl.durable"):
        put_back(out)
    assert content(out) == ["old" if calls < 2 else "new"] * 3
    assert not aside_of(out).exists()
    assert len(caplog.records) == (0 if calls in (0, 5) else 1)


def test_a_disk_that_refuses_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, staging, replace = tmp_path / "out", tmp_path / "staging", os.replace
    fill(out, "old")
    fill(staging, "new")

    def refuse(source: Path, target: Path) -> None:
        if source == staging:
            raise OSError("no")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        swap_in(staging, out)
    assert content(out) == ["old"] * 3
    assert not aside_of(out).exists()


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


def test_what_killed_writers_left_of_one_file_goes(tmp_path: Path) -> None:
    names = (".tmp-a[1].csv-12", ".tmp-a[1].csv-345", ".tmp-a1.csv-12", "a[1].csv")
    for name in names:
        (tmp_path / name).touch()
    remove_unfinished(tmp_path / "a[1].csv")
    assert {path.name for path in tmp_path.iterdir()} == {*names[2:]}
