"""Selected words put to the classifier that a run explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_transformers
import torch
from transformers import AutoModelForSequenceClassification

from rss_rl.config import RewardConfig
from rss_rl.errors import ConfigError
from rss_rl.inference.checking import Checker
from rss_rl.inference.gradient import highest_slopes
from rss_rl.models.inputs import TensorBatch
from rss_rl.reward_models.blackbox import GatedBlackboxReward, TransformerClassifier
from rss_rl.types import Array, LabelSpec

LABELS = LabelSpec("classes", ("no", "yes"))
TEXT = "the film was dull but its music moved me deeply"
WORDS = ["<pad>", "<unk>", *TEXT.split()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_transformers.save_classifier(tmp_path_factory.mktemp("tiny"), "no", "yes")


def checker(folder: Path, **options: Any) -> Checker:
    model = {"name": "blackbox", "options": {"pretrained": str(folder), **options}}
    return Checker(RewardConfig.model_validate({"model": model}), LABELS, WORDS)


def texts() -> tuple[Array, Array, Array]:
    """Words, which are real, and a random third of them, at least one of a text."""
    draw = np.random.default_rng(0)
    words = draw.integers(2, len(WORDS), (6, 9))
    valid = np.arange(9) < np.array([9, 3, 7, 9, 1, 5])[:, None]
    kept = (draw.random((6, 9)) < 0.3) & valid
    kept[:, 0] = True
    return np.where(valid, words, 0), valid, kept


def slow(folder: Path, words: Array, kept: Array) -> Array:
    """Probabilities by the library itself, text by text."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = tiny_transformers.tokenizer()
    found = []
    for own, bits in zip(words, kept, strict=True):
        text = " ".join(WORDS[word] for word in own[bits])
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0].double()
        found.append(torch.softmax(logits, -1).numpy())
    return np.stack(found)


def test_words_are_left_where_the_classifier_is_sure(folder: Path) -> None:
    words, valid, kept = texts()
    chances = np.where(kept, 0.9, 0.2)
    found = checker(folder)(words, valid, kept, chances, 0.0)
    assert np.array_equal(found.kept, kept)
    assert np.array_equal(found.chances, chances)
    assert np.array_equal(found.classes, slow(folder, words, valid).argmax(-1))
    assert np.allclose(found.shares, slow(folder, words, kept), atol=1e-5)
    assert found.names == ["no", "yes"]


def test_others_are_chosen_where_it_is_surer_of_them(folder: Path) -> None:
    """As many as before, never worse, and here better for some."""
    words, valid, kept = texts()
    chances = np.where(kept, 0.9, 0.2)
    found = checker(folder)(words, valid, kept, chances, 1.0)
    rows = np.arange(len(words))
    before = slow(folder, words, kept)[rows, found.classes]
    after = found.shares[rows, found.classes]
    assert np.allclose(found.shares, slow(folder, words, found.kept), atol=1e-5)
    assert (after > before - 1e-5).all()
    changed = (found.kept != kept).any(1)
    assert changed.any()
    assert (after[changed] > before[changed] + 1e-3).any()
    assert np.array_equal(found.kept.sum(1), kept.sum(1))
    assert not (found.kept & ~valid).any()
    assert (found.chances[changed][found.kept[changed]] >= 0.5).all()
    assert (found.chances[changed][(valid & ~found.kept)[changed]] <= 0.5).all()


def test_a_class_that_is_asked_for_is_the_one_that_is_checked(folder: Path) -> None:
    words, valid, kept = texts()
    found = checker(folder, of_class="yes")(words, valid, kept, kept * 0.9, 0.0)
    assert (found.classes == 1).all()


def log_odds(
    model: TransformerClassifier, words: Array, classes: Array, gates: Array, *, upper: bool
) -> Array:
    """Of two classes, float64 [M]."""
    given = torch.from_numpy(words), torch.ones(words.shape) > 0, torch.from_numpy(gates)
    found = model.gated_log_probs(*given, upper=upper).double().detach().numpy()
    odds: Array = found[:, 1] - found[:, 0]
    return np.where(classes == 1, odds, -odds)


def differences(
    model: TransformerClassifier, words: Array, classes: Array, *, upper: bool
) -> Array:
    """Of the log-odds by each gate, a little above 1 and below: [M, N]."""
    step, found = 0.02, []
    for place in range(words.shape[1]):
        more, less = (np.ones(words.shape, dtype=np.float32) for _ in range(2))
        more[:, place] += step
        less[:, place] -= step
        pair = (log_odds(model, words, classes, gates, upper=upper) for gates in (more, less))
        found.append(np.subtract(*pair) / (2 * step))
    return np.stack(found, 1)


@pytest.mark.parametrize("asked", [None, 1])
def test_slopes_are_those_of_the_upper_gates(folder: Path, asked: int | None) -> None:
    words = np.random.default_rng(0).integers(2, len(WORDS), (3, 7))
    model = checker(folder)._model.classifier
    assert isinstance(model, TransformerClassifier)
    slopes, log_probs = model.slopes(words, None if asked is None else np.full(3, asked))
    classes = log_probs.argmax(1) if asked is None else np.full(3, asked)
    assert np.allclose(np.exp(log_probs), slow(folder, words, np.ones_like(words, bool)), atol=1e-5)
    assert np.allclose(slopes, differences(model, words, classes, upper=True), atol=2e-4)
    assert not np.allclose(slopes, differences(model, words, classes, upper=False), atol=2e-4)


def another(folder: Path, name: str) -> TransformerClassifier:
    """A classifier of another type of model, to which words matter."""
    tiny_transformers.save_another(folder, name, initializer_range=0.5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        whole = AutoModelForSequenceClassification.from_pretrained(folder)
        for parameter in whole.parameters():
            if not parameter.any():  # such as biases of relative positions
                torch.nn.init.normal_(parameter)
        whole.save_pretrained(folder)
    model = checker(folder)._model.classifier
    assert isinstance(model, TransformerClassifier)
    return model


@pytest.mark.parametrize(
    "name", ["roberta", "electra", "distilbert", "albert", "modernbert", "mpnet", "roformer"]
)
def test_slopes_of_other_transformers(name: str, tmp_path: Path) -> None:
    words = np.array([[2, 3], [4, 2]])
    model = another(tmp_path, name)
    assert model.takes_gates(words[0])
    plain = model.log_probs(words, words > 0, words > 0)
    slopes, log_probs = model.slopes(words, None)
    assert np.allclose(log_probs, plain, atol=1e-5)
    assert np.abs(slopes).max() > 1e-3
    assert np.allclose(slopes, differences(model, words, plain.argmax(1), upper=True), atol=3e-4)
    whole = differences(model, words, plain.argmax(1), upper=False)
    listed = name != "albert"  # whose library has no list of its layers
    assert np.allclose(slopes, whole, atol=3e-4) != listed
    assert np.array_equal(model.log_probs(words, words > 0, words > 0), plain)  # as it was


@pytest.mark.parametrize("name", ["deberta-v2", "gpt2"])
def test_attention_that_cannot_weigh_words(name: str, tmp_path: Path) -> None:
    """It refuses weights, or is another one with them, as that of decoders."""
    assert not another(tmp_path, name).takes_gates(np.arange(2, 6))
    reward = checker(tmp_path)._model
    assert isinstance(reward, GatedBlackboxReward)
    words = torch.arange(2, 6)[None]
    batch = TensorBatch([words], [words > 0], torch.zeros(1, dtype=torch.int64))
    with pytest.raises(ConfigError, match="cannot weigh words by gates"):
        reward.gated_losses(batch, [torch.ones(1, 1, 2, 4)])


def test_words_beyond_the_maximum_length_are_not_chosen(tmp_path: Path) -> None:
    tiny_transformers.save_classifier(tmp_path, "no", "yes")
    model = checker(tmp_path)._model.classifier
    assert isinstance(model, TransformerClassifier)
    words = np.random.default_rng(0).integers(2, len(WORDS), 60)
    room = 128 - 2
    ends = np.cumsum([len(WORDS[word]) for word in words])  # its pieces are letters
    read = ends - [len(WORDS[word]) for word in words] < room
    assert 0 < read.sum() < 60
    (slopes,), _ = model.slopes(words[None], None)
    assert np.array_equal(np.isfinite(slopes), read)
    kept, chances = highest_slopes(slopes, 0.9)
    assert not kept[~read].any()
    assert kept.sum() == round(0.9 * read.sum())
    assert (chances[~read] == 0).all()


def test_words_are_left_where_attention_takes_no_gates(tmp_path: Path) -> None:
    folder = tiny_transformers.save_another(tmp_path / "deberta", "deberta-v2")
    AutoModelForSequenceClassification.from_pretrained(folder).save_pretrained(folder)
    words, valid, kept = texts()
    found = checker(folder)(words, valid, kept, kept * 0.9, 1.0)
    assert np.array_equal(found.kept, kept)


def test_only_runs_that_explain_a_classifier_are_checked() -> None:
    with pytest.raises(ConfigError, match="explains no classifier"):
        Checker(RewardConfig(), LABELS, WORDS)
