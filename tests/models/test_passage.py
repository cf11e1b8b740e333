"""The passage classifier: its formula, what it reads, and who shares its batch."""

from __future__ import annotations

from typing import Any

import choice_twins
import choices
import numpy as np
import pytest
import small
import torch
import twins
from choices import SENTENCE, Choices
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import VECTOR_ENCODERS
from torch import Tensor

ENCODERS = VECTOR_ENCODERS
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"encoder": name} for name in ENCODERS},
    "biblosan": {"encoder": "biblosan", "block_length": 4},
    "resan, paper's": {"keep_unselected": True},
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)
MANY: list[choices.Lengths] = [
    *choices.FEW, ([10, 3, 18], 3), ([26], 2), ([9, 13], 1), ([2, 1, 3, 1, 2, 2, 1], 2)
]  # fmt: skip
"""Sentences of lengths that are encoded in different pieces; enough of them for several blocks."""


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passages here have few sentences."""
    monkeypatch.setattr("rss_rl.models.encoders.biblosan._SENTENCES", 2)


def words_of(model: Any, drawn: Choices, slot: int, row: int, number: int | None) -> np.ndarray:
    """Embeddings of the selected words of a sentence or question, [n, e]."""
    shown = drawn.valid[slot][row] & drawn.selections[slot][row].any(0)
    if number is not None:
        shown = shown & (drawn.marks[row] == number)
    embedded: np.ndarray = model.embedding(drawn.tokens[slot][row : row + 1])[0].detach().numpy()
    return embedded[shown.numpy()]


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_equals_the_slow_twin(share: float) -> None:
    # The faithful form keeps heads alone: here every selected word is both.
    model = choices.model(SENTENCE, activation="relu")
    drawn = choices.passages(MANY, share=share)
    union = [s.any(1, keepdim=True).expand(-1, 2, -1) for s in drawn.selections]
    logits = model(drawn.tokens, drawn.valid, union, drawn.marks).detach().numpy()
    p = twins.parameters(model)
    for row, (sizes, _) in enumerate(MANY):
        sentences = [words_of(model, drawn, 0, row, k) for k in range(len(sizes))]
        wanted = choice_twins.passage_scores(
            sentences, words_of(model, drawn, 1, row, None), p, "relu", 5.0
        )
        np.testing.assert_allclose(logits[row, : len(sizes)], wanted, rtol=1e-9, atol=1e-10)
        assert (logits[row, len(sizes) :] == -np.inf).all()


@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_passage_alone_equals_itself_in_a_padded_batch(variant: str, dropout: float) -> None:
    model = choices.model(SENTENCE, dropout=dropout, **VARIANTS[variant]).train()
    widths = [(sum(sizes), asked) for sizes, asked in MANY]
    choices.check_alone(model, choices.passages(MANY), widths, dropout)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "resan, paper's"])
@pytest.mark.parametrize("learns", [True, False])
def test_unselected_words_do_not_matter_to_the_bit(variant: str, learns: bool) -> None:
    model = choices.model(SENTENCE, double=False, **VARIANTS[variant])
    drawn = choices.passages(MANY, share=0.4)

    def logits(*given_: Any) -> Tensor:
        with torch.set_grad_enabled(learns):
            return model(*given_)  # type: ignore[no-any-return]

    before = logits(*drawn.inputs)
    unselected = [v & ~s.any(1) for v, s in zip(drawn.valid, drawn.selections, strict=True)]
    other = [
        torch.where(u, t % (small.WORDS - 1) + 1, t)
        for u, t in zip(unselected, drawn.tokens, strict=True)
    ]
    assert all(bool(u.any()) for u in unselected)
    assert torch.equal(logits(other, *drawn.inputs[1:]), before)


def test_in_the_papers_form_unselected_words_of_the_passage_matter() -> None:
    model = choices.model(SENTENCE, keep_unselected=True)
    drawn = choices.passages(share=0.4)
    unselected = drawn.valid[0] & ~drawn.selections[0].any(1)
    other = torch.where(unselected, drawn.tokens[0] % (small.WORDS - 1) + 1, drawn.tokens[0])
    changed = model([other, drawn.tokens[1]], *drawn.inputs[1:])
    assert not torch.allclose(changed[0, :3], model(*drawn.inputs)[0, :3])


@every_variant
@settings(max_examples=10)
@given(
    lengths=st.lists(
        st.tuples(st.lists(st.integers(1, 4), max_size=4), st.integers(0, 3)),
        min_size=1,
        max_size=4,
    ),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_any_passage_and_selection_gives_finite_losses_and_gradients(
    variant: str, lengths: list[choices.Lengths], share: float, seed: int
) -> None:
    model = choices.model(SENTENCE, double=False, **VARIANTS[variant])
    lengths = [(sentences, asked) for sentences, asked in lengths if sentences] or [([1], 0)]
    drawn = choices.passages(lengths, seed=seed, share=share)
    logits = model(*drawn.inputs)
    losses = model.losses(logits, drawn.labels)
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    for parameter in model.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()
    for row, (sentences, _) in enumerate(lengths):
        assert torch.isfinite(logits[row]).tolist() == [
            k < len(sentences) for k in range(logits.shape[1])
        ]
    assert (model.predict(logits) < torch.tensor([len(s) for s, _ in lengths])).all()
