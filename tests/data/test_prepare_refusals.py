"""What `prepare` cannot do is said before it begins, or as an error that names what to do."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, Source
from rss_rl.data.store import open_prepared
from rss_rl.errors import DataError, StorageError
from rss_rl.types import LabelSpec


def counted(read_rows: list[int]) -> Source:
    """A source that notes the rows that were read."""
    words = [f"w{n}" for n in range(300)]

    def read(split: str) -> Iterator[RawExample]:
        for row in range(40):
            read_rows.append(row)
            yield RawExample(str(row), (tuple(words[row : row + 100]),), "ab"[row % 2])

    return Source("counted", 1, LabelSpec("classes", names=("a", "b")), {"train": ()}, read)


def vectors_of(folder: Path) -> dict[str, Path]:
    (folder / "empty.txt").touch()
    (folder / "other.bin").write_bytes(b"a\0 1 2\n")
    (folder / "table.csv").write_text("text,label\n")
    return {name: folder / name for name in ("none.txt", "empty.txt", "other.bin")} | {
        "table": folder / "table.csv",
        "folder": folder,
    }


@pytest.mark.parametrize("which", ["none.txt", "empty.txt", "other.bin", "table", "folder"])
def test_vectors_are_looked_at_before_the_first_row(tmp_path: Path, which: str) -> None:
    read: list[int] = []
    path = vectors_of(tmp_path)[which]
    with pytest.raises(DataError) as error:
        prepare(counted(read), tmp_path / "out", vectors=[path])
    assert str(path) in error.value.where
    assert error.value.remedy
    assert not read
    assert not (tmp_path / "out").exists()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A disk that takes files up to `size` bytes, as seen by what writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_at_every_file(tmp_path: Path) -> None:
    source, out = counted([]), tmp_path / "out"
    manifest = prepare(source, out, dim=40)
    sizes = sorted(path.stat().st_size for path in out.iterdir())
    failed = 0
    for size in [0, *(size - 1 for size in sizes)]:
        for force in (True, False):
            target = out if force else tmp_path / "new"
            try:
                with largest_file(size):
                    prepare(source, target, dim=40, force=force)
            except StorageError as error:
                failed += 1
                assert "cannot be written" in error.what
                assert error.where == str(target)
                assert "space" in error.remedy
            assert not (tmp_path / "new").exists()
    assert failed == 2 * (1 + len(sizes))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert open_prepared(out).manifest == manifest
