"""Archives that are cut short, too large, or would write elsewhere."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from rss_rl.data.catalogue import Unpack
from rss_rl.data.unpack import unpack
from rss_rl.errors import DataError

RULE = Unpack(members=("a.txt", "b.txt"), limit_mb=1)
GOOD = {"set/a.txt": b"alpha" * 1000, "set/b.txt": b"beta", "set/c.txt": b"gamma"}
GOOD |= {"__MACOSX/set/._a.txt": b"x"}


def make(path: Path, files: dict[str, bytes], link: str | None = None) -> Path:
    """An archive of `files`; of a tar member called `link` a symbolic link."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
            for name, content in files.items():
                info = zipfile.ZipInfo(name)
                kind = stat.S_IFLNK if name == link else stat.S_IFREG
                info.external_attr = (kind | 0o644) << 16
                package.writestr(info, content, zipfile.ZIP_DEFLATED)
        return path
    with tarfile.open(path, "w:gz") as package:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if name == link:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0
            package.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture(params=["x.zip", "x.tgz"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def refused(archive: Path, folder: Path, message: str, rule: Unpack = RULE) -> None:
    before = set(folder.parent.rglob("*"))
    with pytest.raises(DataError, match=message):
        unpack(archive, rule, folder)
    assert set(folder.parent.rglob("*")) == before


def test_what_is_asked_for_is_unpacked(archive: Path, folder: Path) -> None:
    names = unpack(make(archive, GOOD), RULE, folder)
    assert sorted(names) == ["a.txt", "b.txt"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {
        "a.txt": GOOD["set/a.txt"],
        "b.txt": GOOD["set/b.txt"],
    }


def test_folders_are_kept_where_asked_for(archive: Path, folder: Path) -> None:
    files = {"cnn/q/training/1.question": b"1", "cnn/q/test/1.question": b"2"}
    rule = Unpack(members=("training/*.question", "test/*.question"), limit_mb=1, keep=2)
    unpack(make(archive, files), rule, folder)
    assert (folder / "training/1.question").read_bytes() == b"1"
    assert (folder / "test/1.question").read_bytes() == b"2"


def test_names_that_lead_out_are_refused(archive: Path, folder: Path) -> None:
    for name in ("../a.txt", "/tmp/a.txt", "set/../../a.txt", "C:a.txt", "..\\a"):
        refused(make(archive, {**GOOD, name: b"evil"}), folder, "leads out")


def test_links_are_refused(archive: Path, folder: Path) -> None:
    refused(make(archive, GOOD, link="set/a.txt"), folder, "link or device")


def test_bombs_are_refused(archive: Path, folder: Path) -> None:
    refused(make(archive, {**GOOD, "set/a.txt": bytes(1_000_001)}), folder, "more than the 1 MB")


def test_every_truncation_is_found(archive: Path, folder: Path) -> None:
    whole = make(archive, {**GOOD, "set/a.txt": os.urandom(3000)}).read_bytes()
    for length in range(0, len(whole), 97):
        archive.write_bytes(whole[:length])
        refused(archive, folder, "damaged or cut short")
