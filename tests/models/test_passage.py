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
from compiling import needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import VECTOR_ENCODERS, model_config
from torch import Tensor

from rss_rl.config import ModelConfig
from rss_rl.models.build import build_classifier, build_context, parameter_count
from rss_rl.models.dropout import keyed_dropout

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
    model = choices.model(SENTENCE, activation="relu", tanh_scale=2.5)
    drawn = choices.passages(MANY, share=share)
    union = [s.any(1, keepdim=True).expand(-1, 2, -1) for s in drawn.selections]
    logits = model(drawn.tokens, drawn.valid, union, drawn.marks).detach().numpy()
    p = twins.parameters(model)
    for row, (sizes, _) in enumerate(MANY):
        sentences = [words_of(model, drawn, 0, row, k) for k in range(len(sizes))]
        wanted = choice_twins.passage_scores(
            sentences, words_of(model, drawn, 1, row, None), p, "relu", 2.5
        )
        np.testing.assert_allclose(logits[row, : len(sizes)], wanted, rtol=1e-9, atol=1e-10)
        assert (logits[row, len(sizes) :] == -np.inf).all()


@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_passage_alone_equals_itself_in_a_padded_batch(variant: str, dropout: float) -> None:
    model = choices.model(SENTENCE, dropout=dropout, **VARIANTS[variant]).train()
    widths = [(sum(sizes), asked) for sizes, asked in MANY]
    choices.check_alone(model, choices.passages(MANY), widths, dropout)


@needs_compiler
@pytest.mark.parametrize("variant", ["resan", "resan, paper's", "disan", "source2token"])
def test_sentences_without_padding_are_those_in_pieces(variant: str) -> None:
    drawn, found = choices.passages(MANY), []
    for attention in ("compiled", "eager"):
        given_ = VARIANTS[variant] | {"attention": attention}
        model = choices.model(SENTENCE, dropout=0.4, **given_).train()
        found.append(choices.gradients(model, drawn, small.keys(3, len(MANY))))
    (packed, by_packed), (padded, by_padded) = found
    torch.testing.assert_close(packed, padded, rtol=1e-9, atol=1e-10)
    for one, other in zip(by_packed, by_padded, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@needs_compiler
@pytest.mark.parametrize("variant", ["resan", "resan, paper's", "disan", "source2token"])
def test_a_word_that_comes_again_in_a_passage_is_looked_up_once(variant: str) -> None:
    drawn, model = choices.passages(MANY), choices.model(SENTENCE, **VARIANTS[variant])
    inputs = [ids % 3 for ids in drawn.tokens], *drawn.inputs[1:]
    looked_up: list[int] = []
    model.embedding.register_forward_hook(lambda module, read, out: looked_up.append(len(out)))
    expected = model(*inputs)
    with torch.no_grad():
        found = model(*inputs)
    assert looked_up[-1] == 3 < looked_up[1]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_sentences_of_a_passage_meet_different_masks() -> None:
    model = choices.model(SENTENCE, encoder="source2token", dropout=0.4).train()
    drawn = choices.passages([([4, 4], 3)], share=1.0)
    drawn.tokens[0][0, 4:] = drawn.tokens[0][0, :4]
    with keyed_dropout(small.keys(0, 1)):
        logits = model(*drawn.inputs)
    assert abs(float((logits[0, 0] - logits[0, 1]).detach())) > 1e-6
    assert torch.equal(*model.eval()(*drawn.inputs)[0])


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


@every_variant
def test_every_parameter_gets_gradient_and_none_from_an_empty_shard(variant: str) -> None:
    model = choices.model(SENTENCE, **VARIANTS[variant])
    _, found = choices.gradients(model, choices.passages(MANY), None)
    for (name, _), gradient in zip(model.named_parameters(), found, strict=True):
        softmaxed = name.endswith(("pool.score.bias", "output.bias"))  # added to all alike
        assert softmaxed or bool((gradient != 0).any()), name
    model.zero_grad()
    empty = choices.passages(MANY).part(slice(0, 0))
    model.losses(model(*empty.inputs), empty.labels).sum().backward()
    for name, parameter in model.named_parameters():  # all take part: learners in a group need that
        assert parameter.grad is not None, name
        assert not parameter.grad.any()


def test_marks_are_asked_for() -> None:
    drawn = choices.passages()
    with pytest.raises(ValueError, match="marks"):
        choices.model(SENTENCE)(drawn.tokens, drawn.valid)


def test_lower_precision_stays_near() -> None:
    model = choices.model(SENTENCE, double=False)
    drawn = choices.passages()
    exact = model(*drawn.inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(*drawn.inputs)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.1, atol=0.2)


def test_parameter_counts_by_arithmetic() -> None:
    d = e = 100
    vectors = np.zeros((4, e), np.float32)
    dense = {n: n * d + d for n in (d, 2 * d, 4 * d)}
    source2token = {n: 2 * (n * n + n) for n in (e, 2 * d)}
    direction = {n: dense[n] + 2 * d * d + d + 2 * (d * d + d) + d for n in (e, 4 * d)}
    shared = source2token[2 * d] + dense[2 * d] + source2token[e] + dense[e] + dense[2 * d] + d + 1
    built = build_classifier(ModelConfig(hidden=d), SENTENCE, 2, vectors, 4)
    count = parameter_count(built, without=built.embedding)
    assert count == shared + 2 * direction[e] + 2 * direction[4 * d] == 413_001
    # The published table, with the context layers of its rows in millions.
    lstm = {n: 2 * 4 * (d * (n + d) + d) for n in (e, 4 * d)}
    gru = {n: 2 * 3 * (d * (n + d) + d) for n in (e, 4 * d)}
    heads = {n: 3 * (n * 2 * d + 2 * d) for n in (e, 4 * d)}
    published = [round((shared + sum(part.values())) / 1e6, 2) for part in (lstm, gru, heads)]
    assert published == [0.71, 0.57, 0.45]


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_has_a_context_layer_over_sentences(name: str) -> None:
    layer = build_context(model_config(encoder=name, hidden=4), 6)
    valid = torch.tensor([[True, True, False], [True, False, False]])
    values = torch.randn(2, 3, 6)
    assert layer(values, valid).shape == (2, 3, layer.output_size)
