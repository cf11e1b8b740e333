"""Texts of very many words are cut where that is asked for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rss_rl.data.label_weights import HASHES, sum_subwords
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.data.store import open_prepared
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

CLASSES = LabelSpec("classes", names=("a", "b"))


def example(name: str, *lengths: int, label: str = "a") -> RawExample:
    texts = tuple(tuple(f"w{n % 9}" for n in range(length)) for length in lengths)
    bits = tuple(tuple(n % 2 == 0 for n in range(length)) for length in lengths)
    people = tuple(n % 4 for n in range(lengths[0]))
    return RawExample(name, texts, label, bits, annotations=people)


@pytest.fixture
def pairs(list_source: Any) -> Any:
    train = [example("x", 3, 9), example("y", 8, 2, label="b"), example("z", 5, 5)]
    return list_source({"train": train, "dev": [example("v", 2, 2)]}, CLASSES, sentences=2)


def test_long_texts_are_cut_with_all_that_belongs_to_their_words(
    pairs: Any, tmp_path: Path
) -> None:
    manifest = prepare(pairs, tmp_path / "out", dim=2, max_words=5)
    info = manifest.splits["train"]
    assert (manifest.max_words, info.rows, info.cut_rows) == (5, 3, 2)
    assert info.longest == (5, 5)
    assert manifest.splits["dev"].cut_rows == 0
    split = open_prepared(tmp_path / "out").split("train")
    assert split.lengths().tolist() == [[3, 5], [5, 2], [5, 5]]
    batch = split.batch([0, 1, 2])
    assert batch.rationale is not None
    assert batch.annotations is not None
    assert batch.rationale[1][0].tolist() == [True, False, True, False, True]
    assert batch.annotations[1].tolist() == [0, 1, 2, 3, 0]
    assert split.words(1)[0] == ("w0", "w1", "w2", "w3", "w4")


def test_a_passage_of_which_a_label_is_a_part_is_not_cut(list_source: Any, tmp_path: Path) -> None:
    row = RawExample("x", (("a", "b", "c"), ("d",)), 1, marks=(0, 1, 1))
    source = list_source({"train": [row]}, LabelSpec("sentence"), sentences=2)
    with pytest.raises(DataError, match="Leave --max-words"):
        prepare(source, tmp_path / "out", dim=2, max_words=2)


def test_more_words_than_are_read_are_a_bad_row_unless_they_are_cut(
    pairs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rss_rl.data.checks.MOST_WORDS", 8)
    with pytest.raises(DataError, match="a text of 9 words, more than the 8 .*--max-words"):
        prepare(pairs, tmp_path / "out", dim=2)
    left = prepare(pairs, tmp_path / "left", dim=2, skip_bad_rows=True)
    cut = prepare(pairs, tmp_path / "cut", dim=2, max_words=8)
    assert [each.splits["train"].rows for each in (left, cut)] == [2, 3]


def test_of_a_word_without_an_end_only_the_beginning_is_cut_into_parts() -> None:
    weights = np.random.default_rng(0).normal(size=(HASHES, 1)).astype(np.float32)
    began = time.process_time()
    own, same, other = sum_subwords(["ab" * 2_000_000, "ab" * 500, "ab" * 400], weights)
    assert own == same != other
    assert time.process_time() - began < 1
