"""The cloze readers: formulas, candidates without words, initial weights, GRUs on padding."""

from __future__ import annotations

from typing import Any

import choice_twins
import choices
import numpy as np
import pytest
import small
import torch
import twins
from choices import CANDIDATE, READERS
from hypothesis import given, settings
from hypothesis import strategies as st

from rss_rl.models.cloze import initial_gru
from rss_rl.models.encoders.recurrent import both_ends

every_reader = pytest.mark.parametrize(("reader", "output"), READERS)
LENGTHS = [(9, 4), (12, 1), (1, 5), (7, 7)]


def read(reader: str, output: str, **settings: Any) -> Any:
    cloze = {"attention": reader, "output": output} | settings.pop("cloze", {})
    return choices.model(CANDIDATE, cloze=cloze, **settings)


@every_reader
@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_equals_the_slow_twin(reader: str, output: str, share: float) -> None:
    model = read(reader, output)
    drawn = choices.clozes(*LENGTHS, share=share)
    logits = model(*drawn.inputs).detach().numpy()
    p = twins.parameters(model)
    tokens, marks = drawn.tokens[0].numpy(), drawn.marks.numpy()
    table = model.embedding(torch.arange(small.WORDS)[None])[0].detach().numpy()
    for row, size in enumerate(LENGTHS):
        shown = [
            [i for i in range(n) if drawn.selections[slot][row, :, i].any()]
            for slot, n in enumerate(size)
        ]
        count = int(marks[row].max()) + 1
        wanted = choice_twins.cloze(
            table[tokens[row][shown[0]]], table[drawn.tokens[1][row].numpy()[shown[1]]],
            [int(marks[row, i]) for i in shown[0]], count, p, reader, output,
        )  # fmt: skip
        np.testing.assert_allclose(logits[row, :count], wanted, rtol=1e-8, atol=1e-9)
        assert (logits[row, count:] == -np.inf).all()


@every_reader
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_an_example_alone_equals_itself_in_a_padded_batch(
    reader: str, output: str, dropout: float
) -> None:
    model = read(reader, output, dropout=dropout).train()
    choices.check_alone(model, choices.clozes(*LENGTHS), LENGTHS, dropout)


@every_reader
def test_unselected_words_do_not_matter(reader: str, output: str) -> None:
    model = read(reader, output, double=False)
    drawn = choices.clozes(*LENGTHS, share=0.3)
    before = model(*drawn.inputs)
    hidden = [v & ~s.any(1) for v, s in zip(drawn.valid, drawn.selections, strict=True)]
    other = [
        torch.where(u, t % (small.WORDS - 1) + 1, t)
        for u, t in zip(hidden, drawn.tokens, strict=True)
    ]
    assert all(bool(u.any()) for u in hidden)
    assert torch.equal(model(other, *drawn.inputs[1:]), before)


def test_a_candidate_whose_words_are_gone_keeps_the_floor_of_a_pointer_and_its_own_score() -> None:
    drawn = choices.clozes((9, 4), share=1.0)
    gone = drawn.selections[0] & (drawn.marks != 1)[:, None]
    inputs = (drawn.tokens, drawn.valid, [gone, drawn.selections[1]], drawn.marks)
    for reader in ("stanford", "sequential"):
        pointer = read(reader, "pointer")(*inputs)
        assert float(pointer.detach()[0, 1]) == pytest.approx(np.log(1e-6))
        assert float(pointer.detach()[0, 0]) > np.log(1e-6) + 1
        scores = read(reader, "entities")(*inputs)
        assert torch.isfinite(scores).all()
        assert abs(float(scores.detach()[0, 1])) > 1e-6


@every_reader
@settings(max_examples=10)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=4),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_any_lengths_and_selections_give_finite_losses_and_gradients(
    reader: str, output: str, lengths: list[tuple[int, int]], share: float, seed: int
) -> None:
    model = read(reader, output, double=False)
    drawn = choices.clozes(*lengths, seed=seed, share=share)
    logits = model(*drawn.inputs)
    losses = model.losses(logits, drawn.labels)
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    counts = (drawn.marks.amax(1) + 1).clamp_min(1) if drawn.marks.shape[1] else torch.ones(1)
    assert (model.predict(logits) < counts).all()
    for parameter in model.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()


def test_gru_directions_start_at_each_sequences_own_ends() -> None:
    torch.manual_seed(0)
    layer = initial_gru(small.EMBEDDING, 3).double()
    lengths = [4, 0, 1, 6]
    valid = torch.arange(6) < torch.tensor(lengths)[:, None]
    values = torch.randn(4, 6, small.EMBEDDING, dtype=torch.float64)
    found = layer(values, valid)
    ends = both_ends(found, valid).detach().numpy()
    p = twins.parameters(layer)
    for row, n in enumerate(lengths):
        wanted = choice_twins.bigru(values[row, :n].numpy(), p)
        np.testing.assert_allclose(found[row, :n].detach().numpy(), wanted, atol=1e-12)
        assert not found[row, n:].any()
        end = np.concatenate([wanted[-1, :3], wanted[0, 3:]]) if n else np.zeros(6)
        np.testing.assert_allclose(ends[row], end, atol=1e-12)
