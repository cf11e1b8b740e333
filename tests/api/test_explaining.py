"""A policy that explains somebody's classifier, from texts alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import tiny_transformers
import torch
from transformers import AutoModelForSequenceClassification

import rss_rl
from rss_rl.errors import DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with random weights, whose classes are called `calm` and `loud`."""
    place = tmp_path_factory.mktemp("tiny") / "classifier"
    tiny_transformers.save(
        place, classes=2, id2label={0: "calm", 1: "loud"}, max_position_embeddings=128
    )
    return place


def balanced(folder: Path, texts: list[str]) -> None:
    """Move the classifier's bias so that it says either class of half of the texts."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = tiny_transformers.tokenizer()
    with torch.no_grad():
        logits = torch.stack(
            [
                model(**tokenizer(t, return_tensors="pt", truncation=True, padding=False)).logits[0]
                for t in texts
            ]
        )
        model.classifier.bias[1] -= (logits[:, 1] - logits[:, 0]).median()
    model.save_pretrained(folder)


def test_from_texts_to_marked_words(folder: Path, tmp_path: Path) -> None:
    draw = random.Random(0)
    words = ["zzz", "aaa", "qq", "xy", "bo", "vvv"]
    texts = [" ".join(draw.choices(words, k=5)) for _ in range(80)]
    balanced(folder, texts)
    run = rss_rl.explain_classifier(
        folder,
        texts,
        keep=0.4,
        out=tmp_path / "run",
        overrides={"phases.0.steps": 6, "evaluation.every": 3, "batch_size": 8},
    )
    assert run.finished
    assert run.config.reward.target_share == 0.4
    assert set(run.model.labels.names) == {"calm", "loud"}
    (marked,) = run.model.select(["zzz aaa unheard"])[0]
    assert marked.selection.shape == (2, 3)


def test_texts_that_tell_nothing_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no text"):
        rss_rl.explain_classifier(folder, [], out=tmp_path / "run")
    with pytest.raises(DataError, match="of every text"):
        rss_rl.explain_classifier(folder, ["aaa"] * 9, out=tmp_path / "run")
