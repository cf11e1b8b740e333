"""Tasks that choose, through the whole trainer: learnt, selected, evaluated, and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import planted_choices
import pytest
import tiny_transformers

from rss_rl.config import parse_config
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import Source
from rss_rl.errors import DataError
from rss_rl.inference.model import load_model
from rss_rl.inference.passage_marks import mark_passage
from rss_rl.results.score import score_run
from rss_rl.training.run import Finished, train
from rss_rl.training.trainer import Evaluated
from rss_rl.types import LabelSpec


def run(source: Source, folder: Path, **model: Any) -> tuple[Path, list[object]]:
    prepare(source, folder / "data", dim=8)
    config = parse_config(planted_choices.tree(folder / "data", **model), where="test")
    return folder / "run", list(train(config, folder / "run"))


def check_learnt(path: Path, events: list[object], accuracy: float) -> None:
    """Better than chance, by selections that leave words out; what was stored scores the same."""
    last = events[-1]
    assert isinstance(last, Finished)
    scores = last.report["splits"]["test"]
    assert scores["thresholded"]["accuracy"] > accuracy
    assert scores["thresholded"]["kept"] < 0.9
    opening = next(e for e in events if isinstance(e, Evaluated))
    assert opening.metrics["all"]["accuracy"] < 0.5  # so that something was learnt
    again = score_run(path, "test", ["thresholded"])
    assert again["thresholded"] == scores["thresholded"]


def test_the_right_sentence_is_learnt_to_be_chosen(tmp_path: Path) -> None:
    path, events = run(planted_choices.PLANTED_SENTENCES, tmp_path, encoder="source2token")
    check_learnt(path, events, 0.75)  # chance 0.29
    found = load_model(path).explain(("The red film. A blue scene was one.", "Where is red"))
    assert [len(s.words) for s in found.sentences] == [10, 3]
    assert found.class_probabilities is not None
    assert list(found.class_probabilities) == ["1: The red film .", "2: A blue scene was one ."]
    assert found.prediction in found.class_probabilities
    assert sum(found.class_probabilities.values()) == pytest.approx(1)


def test_a_transformer_chooses_a_sentence(tmp_path: Path) -> None:
    """One of random weights learns too little here: trained, stored and used as any other."""
    folder = tiny_transformers.save(tmp_path / "bert")
    prepare(planted_choices.PLANTED_SENTENCES, tmp_path / "data", dim=8)
    encoder = {"name": "transformer", "options": {"pretrained": str(folder), "rate": 1.0}}
    tree = planted_choices.tree(tmp_path / "data", encoder=encoder)
    for phase in tree["phases"]:
        phase["steps"] = 4
    path = tmp_path / "run"
    *_, last = train(parse_config(tree, where="test"), path)
    assert isinstance(last, Finished)
    again = score_run(path, "test", ["thresholded"])
    assert again["thresholded"] == last.report["splits"]["test"]["thresholded"]
    found = load_model(path).explain(("The red film. A blue scene was one.", "Where is red"))
    assert found.class_probabilities is not None
    assert list(found.class_probabilities) == ["1: The red film .", "2: A blue scene was one ."]


def test_the_right_candidate_is_learnt_to_be_chosen(tmp_path: Path) -> None:
    path, events = run(
        planted_choices.PLANTED_NAMES,
        tmp_path,
        classifier={"name": "cloze", "options": {"hidden": 8}},
    )
    check_learnt(path, events, 0.75)  # chance 0.33
    found = load_model(path).explain(("the key ann and @bob was 1", "the key is @placeholder"))
    assert found.class_probabilities is not None
    assert list(found.class_probabilities) == ["the", "key", "ann", "and", "@bob", "was"]


def test_candidates_are_the_entities_where_there_are_some() -> None:
    labels = LabelSpec("candidate")
    passage = "@entity3 met @entity1 , @entity3 left"
    found = mark_passage(labels, passage, "@entity1 and @placeholder saw @entity3 and @entity0")
    assert found.names == ("@entity0 (@entity3)", "@entity1")
    np.testing.assert_array_equal(found.marks, [0, -1, 1, -1, 0, -1])
    # As in the data: an entity's name is its place among the entities.
    assert " ".join(found.texts[0]) == "@entity0 met @entity1 , @entity0 left"
    assert " ".join(found.texts[1]) == "@entity1 and @placeholder saw @entity0 and @entity2"
    again = mark_passage(labels, *map(" ".join, found.texts))
    assert (again.texts, again.names) == (found.texts, ("@entity0", "@entity1"))


@pytest.mark.parametrize(
    ("kind", "passage", "question", "message"),
    [
        ("candidate", "a cat sat", "where is it", "@placeholder"),
        ("candidate", "1 , 2", "@placeholder", "none of its words can be the answer"),
        ("sentence", " ", "where", "has no words"),
        ("sentence", "A cat.", "", "has no words"),
    ],
)
def test_texts_that_cannot_be_marked_are_refused(
    kind: Any, passage: str, question: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        mark_passage(LabelSpec(kind), passage, question)
