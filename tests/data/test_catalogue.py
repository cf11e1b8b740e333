"""Entries of the catalogue are those of the sources, which find what their archives leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from rss_rl.data.catalogue import Entry, catalogue
from rss_rl.data.sources import SourceRequest, known_sources, named_source
from rss_rl.durable import file_sha256

CATALOGUE = catalogue()


def test_every_source_that_reads_files_has_an_entry() -> None:
    assert {name for name, source in known_sources().items() if source.needs} <= set(CATALOGUE)


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
