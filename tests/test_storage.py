"""Files at a URI: whole or absent, never outside the root, and one kind of error."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest
from dying import DyingFileSystem, storage_at

from rss_rl.errors import StorageError
from rss_rl.storage import Storage, final_name, open_storage


@pytest.fixture(params=["path", "file", "memory", "fsspec"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "fsspec":
        return storage_at(tmp_path)
    place = str(tmp_path)
    return open_storage(place if request.param == "path" else f"{request.param}://{place}")


def test_files_come_and_go(storage: Storage, tmp_path: Path) -> None:
    assert storage.files() == {}
    assert storage.read("a/b.txt") is None
    storage.write("a/b.txt", b"one")
    storage.write("a/b.txt", b"second")
    (tmp_path / "source").write_bytes(b"x" * 1000)
    storage.upload(tmp_path / "source", "a/c/d.bin")
    opened = io.BytesIO(b"open")
    opened.read()
    storage.upload(opened, "e")
    (tmp_path / "source").unlink()
    assert storage.files() == {"a/b.txt": 6, "a/c/d.bin": 1000, "e": 4}
    assert storage.read("a/b.txt") == b"second"
    storage.download("a/c/d.bin", tmp_path / "there" / "d.bin")
    assert (tmp_path / "there" / "d.bin").read_bytes() == b"x" * 1000
    assert os.listdir(tmp_path / "there") == ["d.bin"]
    (tmp_path / "there" / "d.bin").unlink()
    (tmp_path / "there").rmdir()
    for name in ("a/c/d.bin", "e", "none", "a/none", "none/none"):
        storage.delete(name)
    assert storage.files() == {"a/b.txt": 6}


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "", "."])
def test_no_name_leads_out(storage: Storage, tmp_path: Path, name: str) -> None:
    for call in (storage.read, storage.delete, lambda n: storage.write(n, b"")):
        with pytest.raises(StorageError, match="no name below the root"):
            call(name)
    with pytest.raises(StorageError):
        storage.download(name, tmp_path / "x")


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    filesystem = DyingFileSystem(code=errno.ENOSPC)
    storage = storage_at(tmp_path, filesystem)
    storage.write("a/b", b"old")
    filesystem.left = 1  # the temporary file can be written, and not be moved
    with pytest.raises(StorageError, match="the storage is gone") as caught:
        storage.write("a/b", b"new")
    assert caught.value.where.endswith("/a/b")
    assert caught.value.remedy
    assert storage.read("a/b") == b"old"
    assert [final_name(name) for name in storage.files()] == ["a/b", "a/b"]
    assert final_name("a/.tmp-draft") == "a/.tmp-draft"


def test_no_link_is_written_through_and_no_device_read(tmp_path: Path) -> None:
    mine, storage = tmp_path / "mine", open_storage(str(tmp_path / "there"))
    (mine / "deep").mkdir(parents=True)
    (mine / "deep" / "a").write_text("mine")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "inputs").symlink_to(mine)
    (tmp_path / "there" / "zero").symlink_to("/dev/zero")
    for name in ("inputs/a", "inputs/deep/a"):
        for call in (
            storage.delete,
            lambda n: storage.write(n, b""),
            lambda n: storage.upload(io.BytesIO(), n),
        ):
            with pytest.raises(StorageError, match="a link leads to it"):
                call(name)
    with pytest.raises(StorageError, match="not a file"):
        storage.read("zero")
    assert [path.read_text() for path in mine.rglob("*") if path.is_file()] == ["mine"]


def test_a_whole_file_is_not_read_where_it_is_huge(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**33)
    with pytest.raises(StorageError, match="larger than"):
        open_storage(str(tmp_path)).read("huge")


@pytest.mark.parametrize("place", ["nonsense://x/y", "s3a+x://y"])
def test_what_cannot_be_opened_is_an_error(place: str) -> None:
    with pytest.raises(StorageError, match="cannot be opened") as caught:
        open_storage(place)
    assert caught.value.where == place
