"""`rss_rl.testing.check_source`, on sources that keep their promises and on some that do not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import plugged
import pytest
import small_sources as small
from small_sources import Small

from rss_rl.data.corpora.planted import PLANTED, PLANTED_PAIRS
from rss_rl.data.corpora.sentence_sets import CR, TREC
from rss_rl.data.corpora.sick import SICK_ENTAILMENT, SICK_RELATEDNESS
from rss_rl.data.corpora.sst import SST2
from rss_rl.data.sources import BadRow, SourceComponent, SourceRequest
from rss_rl.errors import ComponentError, ConfigError
from rss_rl.testing import check_source
from rss_rl.types import LabelSpec

FEW = {"train": 5, "dev": 3, "test": 3}


@pytest.mark.parametrize("source", [PLANTED, PLANTED_PAIRS], ids=lambda source: source.name)
def test_made_sources_keep_their_promises(source: SourceComponent) -> None:
    check_source(source, SourceRequest(seed=3), FEW)


@pytest.mark.parametrize("source", [SICK_ENTAILMENT, SICK_RELATEDNESS], ids=lambda s: s.name)
def test_sources_of_files_keep_their_promises(source: SourceComponent, sick_folder: Path) -> None:
    check_source(source, SourceRequest(sick_folder))


def test_sources_of_lines_keep_their_promises(tmp_path: Path) -> None:
    """They hold functions, which have to cross processes."""
    lines = "".join(f"{i % 2} film number {i}\n" for i in range(40))
    files = ("custrev.all", "stsa.binary.train", "stsa.binary.dev", "stsa.binary.test")
    for name in files:
        (tmp_path / name).write_text(lines)
    questions = "".join(f"{('HUM:ind', 'NUM:date')[i % 2]} what is {i} ?\n" for i in range(40))
    for name in ("train_5500.label", "TREC_10.label"):
        (tmp_path / name).write_text(questions)
    check_source(CR, SourceRequest(tmp_path), {"fold": 3})
    check_source(TREC, SourceRequest(tmp_path), {"labels": "fine"})
    check_source(SST2, SourceRequest(tmp_path))


def test_small_ones_do() -> None:
    check_source(Small())
    check_source(Small(spec=None))
    check_source(small.component("made", "rationales"))


def changed(**fields: Any) -> Small:
    return Small(tuple(fields.items()))


SCORES = LabelSpec("score", low=0.0, high=1.0)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Small, "is a class"),
        (object(), "object: the source lacks `name`"),
        (Small(name=""), "has no name"),
        (Small(sentences=3), "has 3 texts an example"),
        (small.OtherSplits(name="untrained"), "no split 'train'"),
        (small.OtherSplits(), r"has the split \['valid'\]"),
        (Small(files=(Path("none.csv"),)), r"names none\.csv"),
        (small.Listing(), "reads train as a list"),
        (small.Changing(), "differently each time"),
        (small.Sharing(), "differently each time"),
        (small.Empty(), "no example"),
        (Small(more=(BadRow("", 0, "bad"),)), "bad row without"),
        (Small(more=("row",)), "yields a str"),
        (changed(id="2"), "the id '2' twice in train"),
        (changed(id=1), "types other than"),
        (changed(label=None), "types other than"),
        (changed(texts=["a b"]), "types other than"),
        (changed(texts=((1, 2),)), "types other than"),
        (changed(texts=("a", "b"), rationale=None), "2 texts where 1"),
        (Small(sentences=2), "1 texts where 2"),
        (changed(rationale=((True,),)), "the rationale does not have one bit"),
        (changed(texts=("a b",)), "marks words of a text"),
        (changed(texts=((),)), "text is empty"),
        (changed(label="maybe"), "example '1' of train: unknown label 'maybe'"),
        (replace(changed(label="high"), spec=SCORES), "'high' is not a number"),
        (replace(changed(label=1.5), spec=SCORES), "outside 0 to 1"),
        (replace(changed(label="yes"), spec=None), "all training rows have the same label"),
        (replace(changed(label=7, marks=(0, 0)), spec=LabelSpec("sentence")), "has the mark 7"),
        (small.Locked(), "cannot be pickled"),
        (small.Stranded(), "cannot be read in another process: OSError: no such database"),
        (small.Homebound(), "begins with another row in another process"),
        (small.component("rationales"), "names no files, and does not declare it"),
        (small.component("made"), "has marked words, and does not declare it"),
        (small.component("made", "rationales", "pairs"), "two texts an example, and declares it"),
    ],
)
def test_broken_promises_are_named(source: Any, message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        check_source(source)


def test_rows_of_files_say_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with pytest.raises(ComponentError, match="does not say where example '1' of train was read"):
        check_source(Small(files=(tmp_path / "a.csv",)))


def test_no_file_is_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text(f"{'word ' * 200_000}\n" * 40)
    check_source(small.Lines(files=(path,)))
    with pytest.raises(ComponentError, match=r"holds 4.,...,... bytes before the first row"):
        check_source(small.Lines(files=(path,), held=True))


def test_torch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").touch()  # in its place, where another process looks first
    monkeypatch.syspath_prepend(tmp_path)
    assert sys.path[0] == str(tmp_path)
    with pytest.raises(ComponentError, match="imports torch"):
        check_source(small.Heavy())


def test_what_is_no_source_and_wrong_options_are_said() -> None:
    with pytest.raises(ComponentError, match="of kind metric"):
        check_source(plugged.GREETING)
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        check_source(PLANTED, options={"trian": 5})
