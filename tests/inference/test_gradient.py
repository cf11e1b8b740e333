"""Words that a classifier needs, by its gradient."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_transformers
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from transformers import AutoModelForSequenceClassification
from typer.testing import CliRunner

import rss_rl
from rss_rl.cli.main import app
from rss_rl.errors import ConfigError, DataError
from rss_rl.inference.gradient import highest_slopes
from rss_rl.types import Array

TEXTS = ["the film was dull, but its music moved me deeply.", "a warm one", "no"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_transformers.save_classifier(tmp_path_factory.mktemp("tiny"), "no", "yes")


def test_it_says_what_the_classifier_predicts_from_all_and_from_the_marked_words(
    folder: Path,
) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = tiny_transformers.tokenizer()

    def probabilities(words: list[str]) -> Array:
        with torch.no_grad():
            logits = model(**tokenizer(" ".join(words), return_tensors="pt")).logits[0]
        found: Array = torch.softmax(logits.double(), -1).numpy()
        return found

    for text, found in zip(TEXTS, rss_rl.mark_words(folder, TEXTS, keep=0.4), strict=True):
        (sentence,) = found.sentences
        assert sentence.text == text
        assert sentence.kept.sum() == max(1, round(0.4 * len(sentence.words)))
        marked = [w for w, kept in zip(sentence.words, sentence.kept, strict=True) if kept]
        assert found.prediction == ["no", "yes"][probabilities(list(sentence.words)).argmax()]
        assert found.class_probabilities is not None
        shares = list(found.class_probabilities.values())
        assert shares == pytest.approx(probabilities(marked), abs=1e-5)


def test_alone_as_in_any_company_and_order(folder: Path) -> None:
    """Words are numbered as they come, which changes nothing."""
    together = rss_rl.mark_words(folder, TEXTS)
    for text, found in zip(reversed(TEXTS), reversed(together), strict=True):
        (alone,) = rss_rl.mark_words(folder, [text])
        assert alone.to_dict() == found.to_dict()


def test_the_class_that_is_asked_for(folder: Path) -> None:
    """With two classes, the words that speak most for one speak least for the other."""
    words = ("the", "film", "was", "dull")
    both = [rss_rl.mark_words(folder, [words], of_class=name)[0] for name in ("no", "yes")]
    assert [found.prediction for found in both] == ["no", "yes"]
    ranks = []
    for found in both:
        chances = found.sentences[0].probabilities
        assert chances is not None
        ranks.append(np.argsort(chances[0]).tolist())
    assert ranks[0] == ranks[1][::-1]


@given(arrays(np.float64, st.integers(1, 20), elements=st.floats(-5, 5)), st.floats(0.01, 1.0))
def test_those_highest_slopes_are_marked(slopes: Array, share: float) -> None:
    kept, chances = highest_slopes(slopes, share)
    assert kept.sum() == min(len(slopes), max(1, round(share * len(slopes))))
    assert slopes[kept].min() >= slopes[~kept].max(initial=-np.inf)
    assert (chances[kept] >= 0.5).all()
    assert (chances[~kept] <= 0.5).all()
    order = np.argsort(slopes, kind="stable")
    assert (np.diff(chances[order]) >= -1e-6).all()


def test_the_command(folder: Path) -> None:
    done = CliRunner().invoke(app, ["select", str(folder), TEXTS[0], "--keep", "0.3", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == rss_rl.mark_words(folder, TEXTS[:1], keep=0.3)[0].to_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "--keep", "0.2"], "takes one text"),
        (["a", "--keep", "0.2", "--check"], "--check is for a run"),
        (["a", "--keep", "0.2", "--sampled", "1"], "--sampled is for a run"),
        (["a", "--keep", "0.2", "--which", "latest"], "--which is for a run"),
        (["a"], "give --keep SHARE"),
        (["a", "--keep", "2"], "share"),
        (["", "--keep", "0.2"], "has no words"),
        (["a", "--keep", "0.2", "--class", "maybe"], "has no class 'maybe'; its classes: no, yes"),
    ],
)
def test_refused_on_the_command_line(folder: Path, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["select", str(folder), *arguments])
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


def test_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="got a str"):
        rss_rl.mark_words(folder, "a text")
    for wrong in (None, 3, [1], b"text", float("nan")):
        with pytest.raises(DataError, match=r"text 2.*where a text is expected"):
            rss_rl.mark_words(folder, ["a", wrong])  # type: ignore[list-item]
    with pytest.raises(DataError, match="got a dict"):
        rss_rl.mark_words(folder, {"a": 1})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'0.2' is not a share"):
        rss_rl.mark_words(folder, ["a"], keep="0.2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not a text classifier"):
        rss_rl.mark_words(tiny_transformers.save(tmp_path / "encoder"), ["a"])
    place = tiny_transformers.save_another(tmp_path / "deberta", "deberta-v2")
    AutoModelForSequenceClassification.from_pretrained(place).save_pretrained(place)
    with pytest.raises(ConfigError, match="cannot weigh words"):
        rss_rl.mark_words(place, ["a"])
