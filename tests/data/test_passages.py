"""SQuAD and TrecQA: sentences of a passage, answers by place, articles and questions kept whole."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rss_rl.cli.data import example_line
from rss_rl.data.corpora.squad import cut_passage, sentence_starts
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, RawExample, SourceRequest, named_source
from rss_rl.data.store import open_prepared

TEXT = "Dr. Fox swims daily (at 6 a.m.). He likes tea!  Rain fell.\n\nWho knew? Nobody did."
SENTENCES = [
    "Dr. Fox swims daily ( at 6 a.m. ) .",
    "He likes tea !",
    "Rain fell .",
    "Who knew ?",
    "Nobody did .",
]


def test_sentences_of_a_passage() -> None:
    passage = cut_passage(TEXT)
    words = np.array(passage.words)
    marks = np.array(passage.marks)
    assert [" ".join(words[marks == k]) for k in range(marks.max() + 1)] == SENTENCES
    for k, sentence in enumerate(("Dr. Fox", "He likes", "Rain fell", "Who knew", "Nobody")):
        place = TEXT.index(sentence)
        assert passage.sentence_at(place) == k
        assert passage.sentence_at(max(0, place - 1)) == max(0, k - 1)
    assert cut_passage(" \n ").words == ()


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["A b. ", "It is.", " ", "\n\n", "U.S. ", '"No!" ', "1. ", "é? "])))
def test_sentences_part_any_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    starts = sentence_starts(text)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    passage = cut_passage(text)
    assert len(passage.words) == len(passage.marks)
    assert sorted(set(passage.marks)) == list(range(len(passage.starts)))


def article(title: str, *paragraphs: tuple[str, list[Any]]) -> dict[str, Any]:
    return {"title": title, "paragraphs": [{"context": c, "qas": q} for c, q in paragraphs]}


def question(key: str, *answers: str, text: str = TEXT) -> dict[str, Any]:
    found = [{"text": answer, "answer_start": text.index(answer)} for answer in answers]
    return {"id": key, "question": f"What of {key}?", "answers": found}


def write(path: Path, *articles: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"version": "1.1", "data": articles}), encoding="utf-8")
    return path.parent


def read(folder: Path, split: str, seed: int = 0, **options: str) -> list[RawExample | BadRow]:
    return list(named_source("squad", SourceRequest(folder, seed, options)).read(split))


def official(folder: Path, *questions: dict[str, Any]) -> Path:
    parts = [article(f"t{i}", (TEXT, [question(f"q{i}", "tea")])) for i in range(20)]
    write(folder / "train-v1.1.json", *parts)
    return write(folder / "dev-v1.1.json", article("d", (TEXT, list(questions))))


def test_the_sentence_of_the_answer(tmp_path: Path) -> None:
    folder = official(
        tmp_path / "squad",
        question("a", "a.m."),
        question("b", "tea"),
        question("c", "Rain", "Nobody", "did"),
        question("d", "Who", "Rain"),
        question("e", " Nobody"),
    )
    rows = [row for row in read(folder, "test") if isinstance(row, RawExample)]
    assert [(row.id, row.label) for row in rows] == [
        ("a", 0),
        ("b", 1),
        ("c", 4),
        ("d", 3),
        ("e", 4),
    ]
    assert rows[1].texts[1] == "What of b?"
    assert (rows[1].file, rows[1].row) == (str(folder / "dev-v1.1.json"), 2)
    assert [len(read(folder, split)) for split in ("train", "dev")] == [18, 2]
    prepare(named_source("squad", SourceRequest(folder)), tmp_path / "out", dim=2)
    split = open_prepared(tmp_path / "out").split("test")
    assert example_line(split, 1).startswith("b  sentence 2: Dr. Fox swims")
    assert example_line(split, 1).endswith("Nobody did . | What of b ?")
    assert split.batch([0, 1]).labels.tolist() == [0, 1]


def test_no_article_is_in_two_splits(tmp_path: Path) -> None:
    parts = [article(f"t{i % 15}", (TEXT, [question(f"{i % 15}-{i}", "tea")])) for i in range(30)]
    folder = write(tmp_path / "squad" / "dev-v1.1.json", *parts)
    owners: dict[int, dict[str, set[str]]] = {}
    for seed in (0, 1):
        owners[seed] = {
            split: {row.id for row in read(folder, split, seed) if isinstance(row, RawExample)}
            for split in ("train", "dev", "test")
        }
        titles = [{key.partition("-")[0] for key in ids} for ids in owners[seed].values()]
        assert sum(map(len, titles)) == len(set.union(*titles)) == 15
        assert sum(map(len, owners[seed].values())) == 30
        assert min(map(len, titles)) >= 1
    assert owners[0] != owners[1]


@pytest.fixture
def trecqa(tmp_path: Path) -> Path:
    folder = tmp_path / "trecqa"
    folder.mkdir()
    rows = [
        ["Who sings ?", "0", "`` A dog , '' he said"],
        ["Where ?", "1", "In -LRB- the -RRB- sea"],
        ["Who sings ?", "1", "Ann sings"],
    ]
    for name in ("train", "dev", "test"):
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([["qtext", "label", "atext"], *rows])
    return folder


def test_answers_of_a_question_share_its_number(tmp_path: Path, trecqa: Path) -> None:
    prepare(named_source("trecqa", SourceRequest(trecqa)), tmp_path / "out", dim=2)
    split = open_prepared(tmp_path / "out").split("test")
    assert split.labels.names == ("wrong", "right")
    batch = split.batch([0, 1, 2])
    assert batch.questions.tolist() == [0, 1, 0]
    assert batch.labels.tolist() == [0, 1, 1]
    assert split.words(0) == (("Who", "sings", "?"), ("``", "A", "dog", ",", "''", "he", "said"))
    assert example_line(split, 2) == "test-4  right: Who sings ? | Ann sings"
