"""Vectors of words that a pretrained encoder reads alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_transformers
import torch
from transformers import AutoModel

from rss_rl.data.pretrained_vectors import ENCODER, principal_components
from rss_rl.data.vectors import check_vectors
from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.errors import ConfigError
from rss_rl.pretrained.words_alone import words_alone

WORDS = ("a", "ox", "saw", "9", "an-owl", "two", "~~", "it")


def vocabulary() -> Vocabulary:
    return Vocabulary((*SPECIAL_WORDS, *WORDS), len(SPECIAL_WORDS) + 3)


def test_a_word_is_the_mean_of_its_pieces_in_a_text_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rss_rl.pretrained.words_alone._AT_ONCE", 3)  # in several parts
    folder = tiny_transformers.save(tmp_path / "bert")
    done: list[int] = []
    states = words_alone(str(folder), vocabulary().words, done.append)
    assert done[-1] == len(vocabulary())
    model = AutoModel.from_pretrained(folder).eval()
    pieces_of = tiny_transformers.tokenizer()
    for word, state in zip(WORDS, states[len(SPECIAL_WORDS) :], strict=True):
        ids = pieces_of(word, return_tensors="pt", padding=False)["input_ids"]
        with torch.no_grad():
            pieces = model(input_ids=ids).last_hidden_state[0, 1:-1]
        np.testing.assert_allclose(state, pieces.mean(0).numpy(), atol=1e-6)


def test_components_are_those_of_the_largest_variance() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    rows *= np.array([1, 9, 2, 5, 0.1, 3], np.float32)
    found = principal_components(rows, 3)
    centred = rows - rows.mean(0)
    basis = np.linalg.svd(centred.astype(np.float64))[2]
    np.testing.assert_allclose(np.abs(found), np.abs(centred @ basis[:3].T), atol=1e-4)
    assert principal_components(rows[:2], 3).shape == (2, 2)


def test_what_is_no_encoder_is_refused_before_any_row_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        check_vectors(Path(f"{ENCODER}{tmp_path / 'nowhere'}"))
