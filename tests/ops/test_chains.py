"""Chains of bits against the enumeration of all selections."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops import bernoulli
from rss_rl.ops.chains import Chain, conditional_logits, draw, entropy

LENGTHS = (6, 1, 4, 0)
PULL = torch.tensor([[1.3], [-0.7]], dtype=torch.float64)


class Enumerated(NamedTuple):
    """All selections of one sentence and role, [2^n, n], and their log-probs, [2^n]."""

    selections: Tensor
    log_prob: Tensor


def enumerate_chain(unary: Tensor, pull: float) -> Enumerated:
    """Slow twin, in the notation of the module: unary [n]."""
    selections = torch.tensor(list(itertools.product([0.0, 1.0], repeat=len(unary)))).double()
    scores = []
    for bits in selections:
        score = sum(float(bits[i]) * unary[i] for i in range(len(unary)))
        for i in range(len(unary) - 1):
            score = score + pull * float(bits[i] == bits[i + 1])
        scores.append(torch.as_tensor(score, dtype=torch.float64))
    total = torch.stack(scores)
    return Enumerated(selections, total - total.logsumexp(0))


def sentences(seed: int = 0, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    width = max(LENGTHS)
    unary = scale * torch.randn(len(LENGTHS), 2, width, generator=generator, dtype=torch.float64)
    return unary, torch.arange(width) < torch.tensor(LENGTHS)[:, None]


def places() -> list[tuple[int, int, int]]:
    """Sentence, role and length of those that have a token."""
    return [(b, r, n) for b, n in enumerate(LENGTHS) for r in range(2) if n]


@given(seed=st.integers(0, 1000), scale=st.sampled_from([0.1, 2.0, 30.0]))
def test_marginals(seed: int, scale: float) -> None:
    unary, valid = sentences(seed, scale)
    marginal = torch.sigmoid(Chain.of(unary, PULL, valid).marginal)
    for b, r, n in places():
        twin = enumerate_chain(unary[b, r, :n], float(PULL[r, 0]))
        wanted = (twin.log_prob.exp()[:, None] * twin.selections).sum(0)
        torch.testing.assert_close(marginal[b, r, :n], wanted, rtol=0, atol=1e-9)


def test_log_prob() -> None:
    unary, valid = sentences()
    chain = Chain.of(unary, PULL, valid)
    for b, r, n in places():
        twin = enumerate_chain(unary[b, r, :n], float(PULL[r, 0]))
        bits = torch.zeros(len(twin.selections), *unary.shape, dtype=torch.bool)
        bits[:, b, r, :n] = twin.selections.bool()
        found = bernoulli.log_prob(conditional_logits(chain, bits), bits, valid)
        torch.testing.assert_close(found[:, b, r].sum(-1), twin.log_prob)
        assert not found[:, b, r, n:].any()


def test_entropy() -> None:
    unary, valid = sentences()
    found = entropy(Chain.of(unary, PULL, valid), valid)
    for b, n in enumerate(LENGTHS):
        total = 0.0
        for r in range(2):
            log_prob = enumerate_chain(unary[b, r, :n], float(PULL[r, 0])).log_prob
            total -= float((log_prob.exp() * log_prob).sum())
        assert float(found[b]) == pytest.approx(total / max(1, 2 * n))


def test_what_is_drawn_is_as_frequent_as_it_is_likely() -> None:
    unary, valid = sentences()
    chain, count = Chain.of(unary, PULL, valid), 40_000
    generator = torch.Generator().manual_seed(1)
    uniforms = torch.rand(count, *unary.shape, generator=generator, dtype=torch.float64)
    bits = draw(chain, uniforms, valid)
    assert not (bits & ~valid[:, None]).any()
    for b, r, n in places():
        twin = enumerate_chain(unary[b, r, :n], float(PULL[r, 0]))
        number = (bits[:, b, r, :n] * 2 ** torch.arange(n - 1, -1, -1)).sum(-1)
        found = torch.bincount(number, minlength=2**n) / count
        chance = twin.log_prob.exp()
        spread = (chance * (1 - chance) / count).sqrt()
        assert ((found - chance).abs() <= 5 * spread + 1 / count).all()


@given(seed=st.integers(0, 100))
def test_drawing_goes_from_bit_to_bit(seed: int) -> None:
    """The composition of functions against a loop over the tokens."""
    unary, valid = sentences(seed)
    chain = Chain.of(unary, PULL, valid)
    generator = torch.Generator().manual_seed(seed)
    uniforms = torch.rand(3, *unary.shape, generator=generator, dtype=torch.float64)
    bits = draw(chain, uniforms, valid)
    for k, (b, r, n) in itertools.product(range(3), places()):
        before = None
        for i in range(n):
            pull = 0.0 if before is None else float(PULL[r, 0]) * (1 if before else -1)
            chance = torch.sigmoid(chain.first[b, r, i] + pull)
            before = bool(uniforms[k, b, r, i] < chance)
            assert bool(bits[k, b, r, i]) == before


def test_without_a_pull_bits_are_independent() -> None:
    unary, valid = sentences()
    chain = Chain.of(unary, torch.zeros(2, 1, dtype=torch.float64), valid)
    torch.testing.assert_close(chain.marginal, unary)
    torch.testing.assert_close(entropy(chain, valid), bernoulli.entropy(unary, valid))


def test_padding_and_other_sentences_do_not_matter() -> None:
    unary, valid = sentences()
    whole = Chain.of(unary, PULL, valid)
    other = unary.masked_fill(~valid[:, None], 7.0)
    again = Chain.of(other, PULL, valid)
    for b, n in enumerate(LENGTHS):
        alone = Chain.of(unary[b : b + 1, :, :n], PULL, valid[b : b + 1, :n])
        torch.testing.assert_close(again.marginal[b, :, :n], whole.marginal[b, :, :n])
        torch.testing.assert_close(alone.marginal[0], whole.marginal[b, :, :n])


def test_runs_get_longer_with_the_pull() -> None:
    valid = torch.ones(1, 200, dtype=torch.bool)
    uniforms = torch.rand(50, 1, 1, 200, generator=torch.Generator().manual_seed(0))
    changes = []
    for pull in (0.0, 1.0, 3.0):
        chain = Chain.of(torch.zeros(1, 1, 200), torch.tensor([[pull]]), valid)
        bits = draw(chain, uniforms, valid)
        changes.append(float((bits[..., 1:] != bits[..., :-1]).float().mean()))
    # 1 / (1 + e^pull): a change against none.
    assert changes == pytest.approx([0.5, 0.269, 0.047], abs=0.02)


def test_gradients() -> None:
    unary, valid = sentences()
    bits = torch.rand(2, *unary.shape, generator=torch.Generator().manual_seed(2)) < 0.5

    def compute(unary: Tensor, pull: Tensor) -> tuple[Tensor, ...]:
        chain = Chain.of(unary, pull, valid)
        log_prob = bernoulli.log_prob(conditional_logits(chain, bits), bits, valid)
        return log_prob.sum((-1, -2)), entropy(chain, valid), chain.marginal * valid[:, None]

    given_ = unary.clone().requires_grad_(), PULL.clone().requires_grad_()
    assert torch.autograd.gradcheck(compute, given_)


def test_far_from_even_nothing_overflows() -> None:
    unary = torch.tensor([[[90.0, -90.0] * 400]]).requires_grad_()
    pull = torch.tensor([[20.0]]).requires_grad_()
    valid = torch.ones(1, 800, dtype=torch.bool)
    chain = Chain.of(unary, pull, valid)
    total = chain.marginal.sum() + entropy(chain, valid).sum()
    total.backward()
    assert unary.grad is not None
    assert pull.grad is not None
    assert total.isfinite()
    assert unary.grad.isfinite().all()
    assert pull.grad.isfinite().all()


def test_shapes_that_do_not_fit() -> None:
    unary, valid = sentences()
    with pytest.raises(ValueError, match="unary"):
        Chain.of(unary, PULL[:1], valid)
    with pytest.raises(ValueError, match="uniforms"):
        draw(Chain.of(unary, PULL, valid), torch.rand(4, 2, 6), valid)
