"""Downloads from a server that behaves well, and badly: the bytes are the file's, or an error."""

from __future__ import annotations

import hashlib
import io
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pooch
import pytest
import requests
from file_server import FileServer, Served, file_server

from rss_rl.data.catalogue import Entry, RemoteFile, Unpack
from rss_rl.data.fetch import Fetched, check_address, check_redirect, fetch
from rss_rl.errors import DataError

PLAIN = random.Random(0).randbytes(300_000)


def packed(name: str = "deep/down/inner.txt") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as package:
        package.writestr(zipfile.ZipInfo(name), b"unpacked")
    return made.getvalue()


ZIP = packed()
UNPACK = Unpack(members=("inner.txt",), limit_mb=1)
SHA = hashlib.sha256(ZIP).hexdigest()
ARCHIVE = RemoteFile(name="set.zip", size=len(ZIP), sha256=SHA, unpack=UNPACK)
UNCHECKED = RemoteFile(name="set.zip", unpack=UNPACK)
Get = Callable[..., list[Fetched]]


def made(*files: RemoteFile) -> Entry:
    home, by_hand = "https://home.example.org/", "download it"
    return Entry(name="made", task="NLI", licence="free", home=home, by_hand=by_hand, files=files)


ENTRY = made(RemoteFile(name="plain.txt"), ARCHIVE)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    with file_server() as served:
        served.files = {"x/plain.txt": Served(PLAIN), "x/set.zip": Served(ZIP)}
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder"


@pytest.fixture
def get(server: FileServer, folder: Path) -> Get:
    def run(entry: Entry = ENTRY, **options: bool) -> list[Fetched]:
        return fetch(entry, folder, mirror=f"{server.url}/x", **options)

    return run


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_folder_holds_what_prepare_reads(get: Get, folder: Path, server: FileServer) -> None:
    plain, archive = get()
    assert (folder / "plain.txt").read_bytes() == PLAIN
    assert (folder / "inner.txt").read_bytes() == b"unpacked"
    assert names(folder) == {"plain.txt", "set.zip", "inner.txt"}
    assert (plain.checked, archive.checked) == (False, True)
    assert (plain.sha256, archive.sha256) == (hashlib.sha256(PLAIN).hexdigest(), SHA)
    assert archive.source == f"{server.url}/x/set.zip"
    server.asked.clear()
    (folder / "inner.txt").write_bytes(b"lost")
    assert [file.source for file in get()] == ["", ""]
    assert server.asked == []
    assert (folder / "inner.txt").read_bytes() == b"unpacked"
    server.files["x/plain.txt"].body = b"news"
    get(force=True)
    assert (folder / "plain.txt").read_bytes() == b"news"


def test_a_file_put_there_by_hand_is_checked(get: Get, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "plain.txt").write_bytes(b"mine")
    (folder / "set.zip").write_bytes(ZIP[:-1] + b"x")
    with pytest.raises(DataError, match=r"set.zip: is not the published file.*--force"):
        get()
    (folder / "set.zip").write_bytes(ZIP)
    get()
    assert (folder / "plain.txt").read_bytes() == b"mine"


def test_a_cut_connection_is_tried_again(
    get: Get, folder: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooch.get_logger().handlers[0], "stream", said := io.StringIO())
    server.files["x/plain.txt"].cuts = [1000, 200_000]
    get()
    assert (folder / "plain.txt").read_bytes() == PLAIN
    server.files["x/plain.txt"].cuts = [1000] * 9
    with pytest.raises(DataError, match=r"plain.txt: cannot be downloaded.*By hand"):
        get(force=True)
    assert names(folder) == {"set.zip", "inner.txt"}
    assert said.getvalue() == ""  # progress is ours


@pytest.mark.parametrize(
    ("served", "message"),
    [
        (Served(ZIP[:-1] + b"x"), "is not the published file"),
        (Served(ZIP + b"x"), r"bytes and not the published"),
        (Served(random.Random(1).randbytes(2_000_000), length=-1), "more bytes than it should"),
        (Served(redirect="file:///etc/passwd"), "not safe to follow"),
        (Served(redirect="/x/set.zip"), "cannot be downloaded.*redirects"),
        (None, "404"),
    ],
)
def test_other_bytes_than_the_published_are_refused(
    get: Get, folder: Path, server: FileServer, served: Served | None, message: str
) -> None:
    del server.files["x/set.zip"]
    if served is not None:
        server.files["x/set.zip"] = served
    with pytest.raises(DataError, match=message):
        get(made(ARCHIVE))
    assert not list(folder.iterdir())


def test_a_redirect_never_leads_from_https_to_http(get: Get, server: FileServer) -> None:
    server.files["other"] = Served(ZIP)
    server.files["x/set.zip"] = Served(redirect="/other")
    assert get(made(ARCHIVE))[0].checked
    answer = requests.Response()
    answer.status_code, answer.url = 302, "https://host/a"
    answer.headers["location"] = "http://host/a"
    with pytest.raises(DataError, match="not safe to follow"):
        check_redirect(answer)
    answer.headers["location"] = "//other/b"
    check_redirect(answer)


def test_an_archive_without_checksum_is_checked_by_unpacking(
    get: Get, folder: Path, server: FileServer
) -> None:
    server.files["x/set.zip"].body = ZIP[:-30]
    with pytest.raises(DataError, match=r"damaged or cut short.*--force"):
        get(made(UNCHECKED))
    server.files["x/set.zip"].body = packed("../inner.txt")
    with pytest.raises(DataError, match="leads out"):
        get(made(UNCHECKED), force=True)
    assert names(folder) == {"set.zip"}


def test_what_cannot_be_fetched_is_explained(folder: Path) -> None:
    with pytest.raises(DataError, match=r"By hand \(https://home.example.org/\): download it"):
        fetch(made(), folder)
    with pytest.raises(DataError, match="no address.*put plain.txt, set.zip into .*--mirror"):
        fetch(ENTRY, folder)
    for mirror in ("ftp://host/", "host/folder", "https://"):
        with pytest.raises(DataError, match="is no http"):
            fetch(ENTRY, folder, mirror=mirror)
    with pytest.raises(DataError, match="is no https"):
        check_address("http://127.0.0.1:1/plain.txt", plain=False)
