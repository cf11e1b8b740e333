"""Every entry of the catalogue is whole: addresses, sizes, checksums and what is unpacked."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest

from rss_rl.data.fetching.catalogue import CATALOGUE, entry
from rss_rl.data.fetching.entries import Entry
from rss_rl.data.fetching.fetch import sources_of
from rss_rl.data.fetching.redirect import check_address
from rss_rl.data.sources import SourceRequest, known_sources, named_source
from rss_rl.durable import file_sha256
from rss_rl.errors import DataError

ENTRIES = [pytest.param(item, id=item.name) for item in CATALOGUE.values()]
TASKS = {"NLI", "relatedness", "classification", "answer-sentence selection", "cloze"}
TASKS |= {"relatedness, NLI", "word vectors", "questions", "claims"}


def test_every_source_that_reads_files_has_an_entry() -> None:
    assert {name for name, source in known_sources().items() if source.needs} <= set(CATALOGUE)


def test_names_are_looked_up() -> None:
    assert entry("snli") is CATALOGUE["snli"]
    with pytest.raises(DataError, match="'snil'; did you mean 'snli'"):
        entry("snil")


@pytest.mark.parametrize("item", ENTRIES)
def test_an_entry_is_whole(item: Entry) -> None:
    assert item.task in TASKS
    assert item.licence
    assert item.by_hand
    assert item.note.endswith(".")
    check_address(item.home, plain=False)
    assert re.fullmatch(r"[a-z0-9-]+", item.default_folder.name)
    assert bool(item.rows) != bool(item.vectors)
    assert all(count > 0 for count in item.rows.values())
    assert item.vectors or (item.prepares or item.name) in known_sources()


@pytest.mark.parametrize("item", ENTRIES)
def test_its_files_are_whole(item: Entry) -> None:
    names = [file.name for file in item.files]
    assert len(set(names)) == len(names)
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
    sizes = [file.size for file in item.files]
    if sizes and None not in sizes:
        assert item.about_mb is None
        assert item.megabytes == pytest.approx(sum(filter(None, sizes)) / 1e6)


@pytest.mark.parametrize(
    "item",
    [pytest.param(i, id=i.name) for i in CATALOGUE.values() if i.needs and not i.vectors],
)
def test_a_source_finds_its_files_in_what_is_left(item: Entry, tmp_path: Path) -> None:
    for name in item.needs:
        (tmp_path / name).mkdir() if "." not in name else (tmp_path / name).touch()
    for folder in tmp_path.glob("*/"):
        (folder / "1.question").touch()
    source = named_source(item.prepares or item.name, SourceRequest(tmp_path))
    read = {path for paths in source.splits().values() for path in paths}
    assert {path.relative_to(tmp_path).parts[0] for path in read} == set(item.needs)


def test_the_commands_name_the_folder() -> None:
    assert CATALOGUE["trec"].command(Path("a b")) == (
        "rss-rl data prepare trec --from 'a b' --out prepared/trec"
    )
    assert "--vectors v/glove.6B.zip:glove.6B.300d.txt" in CATALOGUE["glove-6b"].command(Path("v"))
    assert "prepare sick-relatedness --from" in CATALOGUE["sick-full"].command(Path("x"))


def test_a_mirror_has_the_files_below_its_prefix() -> None:
    item = CATALOGUE["trec"]
    assert sources_of(item)[0] == "https://cogcomp.seas.upenn.edu/Data/QA/QC/train_5500.label"
    assert sources_of(item, "http://host/x/") == [
        "http://host/x/train_5500.label",
        "http://host/x/TREC_10.label",
    ]


def test_nothing_has_a_checksum_without_evidence() -> None:
    """Those with one, so that a new one is a decision."""
    known = {file.name for item in CATALOGUE.values() for file in item.files if file.sha256}
    assert known == {
        "SICK.zip",
        "snli_1.0.zip",
        "train_5500.label",
        "TREC_10.label",
        "trainDevTestTrees_PTB.zip",
        "train-v1.1.json",
        "dev-v1.1.json",
        "lambada-dataset.tar.gz",
        "glove.6B.zip",
        "GoogleNews-vectors-negative300.bin.gz",
    }


@pytest.mark.parametrize("name", ["squad", "trec"])
def test_the_checksums_are_those_of_the_real_files(real_data: Path, name: str) -> None:
    for file in CATALOGUE[name].files:
        path = real_data / name / file.name
        if path.exists():
            assert (path.stat().st_size, file_sha256(path)) == (file.size, file.sha256)
