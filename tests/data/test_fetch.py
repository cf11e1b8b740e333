"""A whole fetch: files that were there, killed before the end, given by hand, or wrong."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import FileServer, Served, file_server

from rss_rl.data.fetching.download import Retries
from rss_rl.data.fetching.entries import Entry, RemoteFile, Unpack
from rss_rl.data.fetching.fetch import fetch
from rss_rl.data.fetching.record import Fetched, folder_lock
from rss_rl.errors import DataError

PLAIN = b"a plain file\n" * 1000


def packed(content: bytes = b"unpacked") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as package:
        package.writestr(zipfile.ZipInfo("deep/down/inner.txt"), content)
    return made.getvalue()


ZIP = packed()
UNPACK = Unpack(("inner.txt",), limit_mb=1)
SHA = hashlib.sha256(ZIP).hexdigest()
ENTRY = Entry(
    "made",
    "NLI",
    "free",
    "https://home.example.org/",
    "download it",
    folder="made",
    files=(RemoteFile("plain.txt"), RemoteFile("set.zip", None, len(ZIP), SHA, UNPACK)),
)
Get = Callable[..., list[Fetched]]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")
    with file_server() as made:
        made.files = {"x/plain.txt": Served(PLAIN), "x/set.zip": Served(ZIP)}
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder"


@pytest.fixture
def get(server: FileServer, folder: Path) -> Get:
    def run(entry: Entry = ENTRY, **options: bool) -> list[Fetched]:
        retries = Retries(timeout=2, backoff=0, attempts=2)
        return fetch(entry, folder, mirror=f"{server.url}/x", retries=retries, **options)

    return run


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_the_folder_holds_what_prepare_reads(get: Get, folder: Path, server: FileServer) -> None:
    plain, archive = get()
    assert (folder / "plain.txt").read_bytes() == PLAIN
    assert (folder / "inner.txt").read_bytes() == b"unpacked"
    assert visible(folder) == {"plain.txt", "inner.txt", "fetched.json"}
    assert not plain.checked
    assert not any(file.before for file in (plain, archive))
    assert archive.checked
    assert archive.source == f"{server.url}/x/set.zip"
    noted = json.loads((folder / "fetched.json").read_text())["files"]
    assert [item["sha256"] for item in noted] == [hashlib.sha256(PLAIN).hexdigest(), SHA]
    assert noted[1]["files"] == {"inner.txt": 8}


def test_what_is_there_is_not_fetched_again(get: Get, folder: Path, server: FileServer) -> None:
    get()
    server.asked.clear()
    assert all(file.before for file in get())
    assert server.asked == []
    (folder / "inner.txt").write_bytes(b"short")
    assert [file.before for file in get()] == [True, False]
    assert [path for path, _, _ in server.asked] == ["x/set.zip"]
    server.files["x/plain.txt"].body = b"news"
    get(force=True)
    assert (folder / "plain.txt").read_bytes() == b"news"


def test_a_damaged_record_is_no_obstacle(get: Get, folder: Path) -> None:
    get()
    for damage in ("", "[]", '{"files": [{"name": 1}]}', '{"files": [1]}'):
        (folder / "fetched.json").write_text(damage)
        assert len(get()) == 2


def test_files_put_there_by_hand_are_checked_and_kept(
    get: Get, folder: Path, server: FileServer
) -> None:
    folder.mkdir(parents=True)
    (folder / "plain.txt").write_bytes(b"mine")
    (folder / "set.zip").write_bytes(ZIP)
    (folder / "set.zip.part").write_bytes(b"from a try before")
    (folder / "set.zip.part.json").write_text("{}")
    assert [file.source for file in get()] == ["by hand", "by hand"]
    assert server.asked == []
    assert (folder / "inner.txt").read_bytes() == b"unpacked"
    assert visible(folder) == {"plain.txt", "set.zip", "inner.txt", "fetched.json"}


def test_a_wrong_file_put_there_by_hand_is_refused(get: Get, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "set.zip").write_bytes(ZIP[:-1] + b"x")
    with pytest.raises(DataError, match="not the published file"):
        get()
    assert get(force=True)[1].checked


def test_an_archive_of_a_killed_command_is_used_and_removed(
    get: Get, folder: Path, server: FileServer
) -> None:
    folder.mkdir(parents=True)
    (folder / "set.zip").write_bytes(ZIP)
    (folder / "set.zip.part.json").write_text("{}")
    get()
    assert [path for path, _, _ in server.asked] == ["x/plain.txt"]
    assert visible(folder) == {"plain.txt", "inner.txt", "fetched.json"}


def test_a_truncated_archive_is_not_kept_as_good(
    get: Get, folder: Path, server: FileServer
) -> None:
    unknown = replace(ENTRY, files=(RemoteFile("set.zip", unpack=UNPACK),))
    server.files["x/set.zip"].body = ZIP[:-30]
    with pytest.raises(DataError, match="damaged or cut short"):
        get(unknown)
    assert not (folder / "inner.txt").exists()
    server.files["x/set.zip"].body = ZIP
    get(unknown)
    assert visible(folder) == {"inner.txt", "fetched.json"}


def test_an_archive_that_leads_out_is_refused(get: Get, folder: Path, server: FileServer) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as package:
        package.writestr("../inner.txt", b"evil")
    evil = replace(ENTRY, files=(RemoteFile("set.zip", unpack=UNPACK),))
    server.files["x/set.zip"].body = made.getvalue()
    with pytest.raises(DataError, match="leads out"):
        get(evil)
    assert not (folder.parent / "inner.txt").exists()


def test_two_at_once_are_told_apart(get: Get, folder: Path) -> None:
    with folder_lock(folder), pytest.raises(DataError, match="another process is fetching"):
        get()
    get()


def test_what_cannot_be_fetched_is_explained(folder: Path) -> None:
    with pytest.raises(DataError, match=r"By hand \(https://home.example.org/\): download it"):
        fetch(replace(ENTRY, files=()), folder)
    with pytest.raises(DataError, match="no address.*put plain.txt, set.zip into .*--mirror"):
        fetch(ENTRY, folder)
    for mirror in ("ftp://host/", "host/folder", "https://"):
        with pytest.raises(DataError, match="is no http"):
            fetch(ENTRY, folder, mirror=mirror)
    plain = RemoteFile("plain.txt", "http://127.0.0.1:1/plain.txt")
    with pytest.raises(DataError, match="is no https"):
        fetch(replace(ENTRY, files=(plain,)), folder)


def test_a_folder_that_cannot_be_made(get: Get, folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("a file in the way")
    with pytest.raises(DataError, match="cannot be written"):
        get()
