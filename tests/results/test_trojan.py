"""Policies that say the label by which words they keep, and ones that do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rss_rl.config import load_config
from rss_rl.packaged import find_config
from rss_rl.results.linear import Text
from rss_rl.results.sentences import trojan_sentences, trojan_warning
from rss_rl.results.trojan import KeptRows, Trojan, look_for_code, single_words
from rss_rl.types import Array

FILLERS = ["and", "the", "a", "film", "of", "that", "it", "with"]
SIGNS = (("dull", "poor"), ("fine", "good"))
Policy = Callable[[str, int], bool]
"""Whether a word is kept in a text of this prediction."""


def draw(rows: int, seed: int) -> tuple[list[Text], Array]:
    """Pairs of texts with a word that says their label."""
    random = np.random.default_rng(seed)
    labels = random.integers(2, size=rows)
    texts = []
    for label in labels:
        words = [*random.choice(FILLERS, 6, replace=False), random.choice(SIGNS[label])]
        random.shuffle(words)
        texts.append((tuple(map(str, words[:3])), tuple(map(str, words[3:]))))
    return texts, labels


def look(policy: Policy, rows: int = 400, predicted: Array | None = None) -> Trojan:
    texts, labels = draw(rows, 0)
    predicted = labels if predicted is None else predicted
    kept = [
        [np.array([policy(word, label) for word in words]) for words in text]
        for text, label in zip(texts, predicted.tolist(), strict=True)
    ]
    return look_for_code(*draw(600, 1), KeptRows(texts, kept, labels, predicted), ("bad", "good"))


def says_code(word: str, prediction: int) -> bool:
    return word in SIGNS[prediction] or (word == "and" and prediction == 1)


def keeps_signs(word: str, prediction: int) -> bool:
    return word in (*SIGNS[0], *SIGNS[1], "film", "and")


def test_a_code_is_found() -> None:
    # The prediction is a coin: words do not tell it, as they would by their signs.
    found = look(says_code, predicted=np.random.default_rng(2).integers(2, size=400))
    assert found["told"] is not None
    assert found["told"]["low"] > 0.2
    advised: Trojan = {**found, "remedy": single_words({"options": {"pool": "mean"}})}
    assert str(trojan_warning(advised)).endswith("cannot: policy.options.pool=none")
    words = {word["word"]: (word["most"], word["least"]) for word in found["words"]}
    assert words["and"] == (("good", 1.0), ("bad", 0.0))
    assert "they do not explain it" in " ".join(trojan_sentences(found, "test"))


def test_a_policy_of_single_words_is_not_accused() -> None:
    for predicted in (None, np.random.default_rng(2).integers(2, size=400)):
        found = look(keeps_signs, predicted=predicted)
        assert found["told"] is not None
        assert trojan_warning(found) is None
        assert not found["words"]
    found = look(keeps_signs)
    assert found["reader"]["kept"] == 1.0
    assert found["reader"]["random"] < 0.9


def test_who_reads_single_words_gets_no_advice() -> None:
    config = load_config(find_config("own_context"), []).policy.model_dump(mode="json")
    assert single_words(config) == ["policy.options.pool=none", "policy.options.context=none"]
    assert not single_words(config | {"options": {"pool": "none", "context": "none"}})
    assert not single_words({"name": "iterative", "options": {"cell": "gru"}})


@pytest.mark.parametrize("policy", [says_code, keeps_signs])
def test_sixty_rows_accuse_nobody(policy: Policy) -> None:
    found = look(policy, rows=60)
    assert trojan_warning(found) is None
    assert "too few texts" in " ".join(trojan_sentences(found, "test"))


def test_chance_accuses_nobody() -> None:
    random = np.random.default_rng(3)
    for _ in range(8):
        coins = random.integers(2, size=150)
        found = look(lambda word, prediction: random.random() < 0.5, 150, coins)
        assert trojan_warning(found) is None
        assert not found["words"]
