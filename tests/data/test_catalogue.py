"""Every entry of the catalogue is whole: addresses, sizes, checksums and what is unpacked."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest

from rss_rl.data.catalogue import Entry, catalogue
from rss_rl.data.fetch import check_address
from rss_rl.data.sources import SourceRequest, known_sources, named_source
from rss_rl.durable import file_sha256

CATALOGUE = catalogue()
TASKS = {"NLI", "relatedness", "classification", "answer-sentence selection", "cloze"}
TASKS |= {"relatedness, NLI", "word vectors"}


def test_every_source_that_reads_files_has_an_entry() -> None:
    assert {name for name, source in known_sources().items() if source.needs} <= set(CATALOGUE)


def test_entries_are_whole() -> None:
    for item in CATALOGUE.values():
        assert item.task in TASKS
        assert item.note.endswith(".")
        check_address(item.home, plain=False)
        assert re.fullmatch(r"[a-z0-9-]+", item.default_folder.name)
        assert bool(item.rows) != bool(item.vectors)
        assert all(count > 0 for count in item.rows.values())
        assert item.vectors or (item.prepares or item.name) in known_sources()
        check_files(item)


def check_files(item: Entry) -> None:
    assert len({file.name for file in item.files}) == len(item.files)
    for file in item.files:
        assert re.fullmatch(r"[\w.-]+", file.name)
        assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.size is None or file.size > 0
        if file.url is not None:
            check_address(file.url, plain=False)
            assert PurePosixPath(file.url).name == file.name
        if file.unpack is not None:
            assert file.name.endswith((".zip", ".tar.gz", ".tgz"))
            assert file.unpack.limit_mb > (file.size or 0) / 1e6


@pytest.mark.parametrize(
    "item",
    [pytest.param(i, id=i.name) for i in CATALOGUE.values() if i.needs and not i.vectors],
)
def test_a_source_finds_its_files_in_what_is_left(item: Entry, tmp_path: Path) -> None:
    for name in item.needs:
        (tmp_path / name).mkdir() if "." not in name else (tmp_path / name).touch()
    for folder in tmp_path.glob("*/"):
        for name in ("1.question", "train.jsonl", "val.jsonl", "test.jsonl", "docs"):
            (folder / name).touch()
    source = named_source(item.prepares or item.name, SourceRequest(tmp_path))
    read = {path for paths in source.splits.values() for path in paths}
    assert {path.relative_to(tmp_path).parts[0] for path in read} == set(item.needs)


@pytest.mark.parametrize("name", ["squad", "trec"])
def test_the_checksums_are_those_of_the_real_files(real_data: Path, name: str) -> None:
    for file in CATALOGUE[name].files:
        path = real_data / name / file.name
        if path.exists():
            assert (path.stat().st_size, file_sha256(path)) == (file.size, file.sha256)
