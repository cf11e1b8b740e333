"""Prepared data know their checksums: what is damaged or gone says so when it is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from damaged import SHARD, use

from rss_rl.data import locations
from rss_rl.data.store import open_prepared
from rss_rl.durable import file_sha256
from rss_rl.errors import DataError

FILES = (SHARD, "vocabulary.json", "vectors.safetensors")


def test_the_manifest_says_what_each_file_is(folder: Path) -> None:
    known = open_prepared(folder).manifest.files()
    assert set(known) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    for name, info in known.items():
        assert info.sha256 == file_sha256(folder / name)


def change(path: Path, old: bytes, new: bytes) -> None:
    """One byte that leaves the file readable: another word, another number."""
    content = path.read_bytes()
    assert content.count(old) >= 1
    path.write_bytes(content.replace(old, new, 1))


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_found_when_it_is_opened(folder: Path, name: str) -> None:
    if name == "vectors.safetensors":
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-4] + b"\0\0\0\0")
    else:
        change(folder / name, b"word1", b"word8")
    with pytest.raises(DataError, match=rf"{name}: its SHA-256 is [0-9a-f]+") as error:
        use(folder)
    assert "prepare the data again" in error.value.remedy


def test_a_shard_is_read_through_once_a_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(path: Path) -> str:
        read.append(path.name)
        return file_sha256(path)

    monkeypatch.setattr(locations, "file_sha256", counted)
    prepared = open_prepared(folder)
    assert read == []
    for _ in range(2):
        prepared.split("train").batch([0])
        open_prepared(folder).split("train").batch([1])
    assert read == [SHARD]
    change(folder / SHARD, b"word1", b"word8")  # another file under the same name
    with pytest.raises(DataError, match="its SHA-256"):
        open_prepared(folder).split("train").batch([0])
