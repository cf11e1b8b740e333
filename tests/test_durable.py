"""A file or a folder is replaced as a whole, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rss_rl.durable import new_folder, remove_unfinished, replace_file, replacing

PIECES = ("a", "b", "c")


def fill(folder: Path, text: str) -> None:
    folder.mkdir()
    for name in PIECES:
        (folder / name).write_text(text)


def content(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in PIECES if (folder / name).exists()]


def test_a_folder_is_replaced_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(out, "old")
    with pytest.raises(FileNotFoundError), new_folder(out) as folder:
        (folder / "missing" / "a").write_text("new")
    assert content(out) == ["old"] * 3
    with new_folder(out) as folder:
        (folder / "a").write_text("new")
        assert content(out) == ["old"] * 3
    assert content(out) == ["new"]
    assert os.listdir(tmp_path) == ["out"]


def test_what_dead_writers_left_goes_and_what_living_ones_write_stays(tmp_path: Path) -> None:
    out, mine = tmp_path / "out", tmp_path / ".out-notebook"
    (mine / "new").mkdir(parents=True)
    (mine / "new" / "a").write_text("mine")
    (mine / "thesis").touch()
    killed = "import os; from pathlib import Path; from rss_rl.durable import new_folder\n"
    killed += f"with new_folder(Path({str(out)!r})) as f: (f / 'a').touch(); os._exit(9)"
    subprocess.run([sys.executable, "-c", killed], check=False)
    assert len(os.listdir(tmp_path)) == 2
    with new_folder(out) as folder:
        (folder / "a").write_text("first")
        with new_folder(out) as other:
            (other / "a").write_text("other")
        assert content(folder) == ["first"]
    assert content(out) == ["first"]
    assert sorted(os.listdir(tmp_path)) == [mine.name, "out"]
    left = tmp_path / ".out-abcdefgh"
    left.mkdir()
    out.rename(left / "old")  # as one that was killed between the two renames
    with new_folder(out):
        assert content(left / "old") == ["first"]
    with new_folder(out):
        assert not left.exists()


def test_a_folder_is_on_the_disk_before_it_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Path] = []
    monkeypatch.setattr("rss_rl.durable.sync_file", lambda path: done.append(path))
    with new_folder(tmp_path / "out") as folder:
        (folder / "deep").mkdir()
        for name in PIECES:
            (folder / "deep" / name).touch(mode=0o600)
    written = [folder / "deep" / name for name in PIECES]
    assert {*done[:-1]} == {*written, folder / "deep", folder}
    assert done[-1] == tmp_path
    (tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in (tmp_path / "out" / "deep").iterdir()}
    assert modes == {(tmp_path / "plain").stat().st_mode}


def test_a_disk_that_refuses_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, replace = tmp_path / "out", os.replace
    fill(out, "old")

    def refuse(source: Path, target: Path) -> None:
        if target == out and source.name == "new":
            raise OSError("no")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"), new_folder(out) as folder:
        (folder / "a").write_text("new")
    assert content(out) == ["old"] * 3
    assert os.listdir(tmp_path) == ["out"]


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
    with replacing(tmp_path / "a[1].csv") as living:
        living.write_text("both")
        remove_unfinished(tmp_path / "a[1].csv")
        assert {path.name for path in tmp_path.iterdir()} == {*names[2:], living.name}
    assert (tmp_path / "a[1].csv").read_text() == "both"
