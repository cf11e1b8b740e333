"""Independent Bernoulli selections: probabilities, log-prob and entropy bit by bit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops import bernoulli
from rss_rl.policies.distributions import IndependentBits


def draw(b: int, roles: int, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits [B, R, N] and a valid mask [B, N] whose first sentence is full, last one empty."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, n + 1, b)
    lengths[0] = n
    if b > 1:
        lengths[-1] = 0
    valid = np.arange(n) < lengths[:, None]
    return torch.from_numpy(2 * random.normal(size=(b, roles, n))), torch.from_numpy(valid)


SHAPES = {
    "k": st.integers(1, 3),
    "b": st.integers(1, 4),
    "roles": st.integers(1, 2),
    "n": st.integers(1, 5),
    "seed": st.integers(0, 10**6),
}


@given(**SHAPES)
def test_log_prob_is_the_product_over_real_tokens(
    k: int, b: int, roles: int, n: int, seed: int
) -> None:
    logits, valid = draw(b, roles, n, seed)
    bits = torch.from_numpy(np.random.default_rng(seed + 1).random((k, b, roles, n)) < 0.5)
    masked = bernoulli.never_on_padding(logits, valid)
    result = bernoulli.log_prob(masked, bits & valid[:, None]).numpy()
    for sample, row in itertools.product(range(k), range(b)):
        chance = 1.0
        for role, token in itertools.product(range(roles), range(n)):
            p = 1 / (1 + math.exp(-logits[row, role, token]))
            if valid[row, token]:
                wanted = p if bits[sample, row, role, token] else 1 - p
                assert math.exp(result[sample, row, role, token]) == pytest.approx(wanted, rel=1e-9)
                chance *= wanted
            else:
                assert result[sample, row, role, token] == 0
        assert math.exp(result[sample, row].sum()) == pytest.approx(chance, rel=1e-9)


@given(**SHAPES)
def test_sample_compares_uniforms_with_probabilities(
    k: int, b: int, roles: int, n: int, seed: int
) -> None:
    logits, valid = draw(b, roles, n, seed)
    uniforms = np.random.default_rng(seed + 1).random((k, b, 2, n))
    found = IndependentBits(logits, valid).sample(torch.from_numpy(uniforms)).selection.numpy()
    p = 1 / (1 + np.exp(-logits.numpy()))
    wanted = (uniforms[:, :, :roles] < p) & valid.numpy()[:, None]
    assert np.array_equal(found, np.broadcast_to(wanted, found.shape))


def entropy(logits: Tensor, valid: Tensor) -> Tensor:
    masked = bernoulli.never_on_padding(logits, valid)
    return bernoulli.entropy(masked, torch.sigmoid(masked), valid)


@given(**{name: SHAPES[name] for name in ("b", "roles", "n", "seed")})
def test_entropy_is_the_mean_over_real_bits(b: int, roles: int, n: int, seed: int) -> None:
    logits, valid = draw(b, roles, n, seed)
    result = entropy(logits, valid).numpy()
    for row in range(b):
        bits = []
        for role, token in itertools.product(range(roles), range(n)):
            p = 1 / (1 + math.exp(-logits[row, role, token]))
            if valid[row, token]:
                bits.append(-p * math.log(p) - (1 - p) * math.log(1 - p))
        assert result[row] == pytest.approx(np.mean(bits) if bits else 0.0, abs=1e-12)


def test_gradient_of_the_log_prob_is_bit_minus_probability() -> None:
    logits, valid = draw(3, 2, 4)
    bits = torch.from_numpy(np.random.default_rng(1).random((1, 3, 2, 4)) < 0.5) & valid[:, None]
    logits.requires_grad_()
    log_prob = bernoulli.log_prob(bernoulli.never_on_padding(logits, valid), bits)
    (gradient,) = torch.autograd.grad(log_prob.sum(), logits)
    wanted = (bits[0].double() - torch.sigmoid(logits)) * valid[:, None]
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [50.0, 200.0, 1e4])
def test_certain_bits_stay_finite(size: float) -> None:
    logits = torch.tensor([[[size, -size]]]).requires_grad_()
    valid = torch.ones(1, 2, dtype=torch.bool)
    bits = torch.tensor([[[[True, False]]], [[[False, True]]]])
    log_prob = bernoulli.log_prob(logits, bits).sum((-1, -2))
    assert log_prob[:, 0].tolist() == pytest.approx([0.0, -2 * size], abs=1e-6)
    total = log_prob.sum() + entropy(logits, valid).sum()
    assert torch.isfinite(torch.autograd.grad(total, logits)[0]).all()
    assert float(entropy(logits.detach(), valid)) == pytest.approx(0.0, abs=1e-6)


@given(**{name: SHAPES[name] for name in ("b", "roles", "n", "seed")}, share=st.floats(0.05, 0.95))
def test_even_logits_keep_a_share_of_every_sentence(
    b: int, roles: int, n: int, seed: int, share: float
) -> None:
    """Their differences within a sentence are those of the scores; padding changes nothing."""
    scores, valid = draw(b, roles, n, seed)
    shares = torch.tensor([share, 1 - share][:roles], dtype=scores.dtype)
    logits = bernoulli.even_logits(scores, valid, shares)
    for row, role in itertools.product(range(b), range(roles)):
        real = valid[row]
        if not real.any():
            continue
        own = logits[row, role, real]
        assert torch.sigmoid(own).mean().item() == pytest.approx(shares[role].item(), abs=1e-6)
        levels = scores[row, role, real] - own
        assert levels.max().item() == pytest.approx(levels.min().item(), abs=1e-9)
        alone = scores[row : row + 1, role : role + 1, real]
        again = bernoulli.even_logits(alone, torch.ones(1, int(real.sum())) > 0, shares[role, None])
        assert torch.allclose(again[0, 0], own, atol=1e-6)


def test_the_gradient_of_even_logits_is_that_of_the_implicit_level() -> None:
    scores, valid = draw(3, 2, 5)
    valid[-1, 0] = True
    given_ = scores.requires_grad_(), torch.tensor([0.4, 0.7], dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda s, share: bernoulli.even_logits(s, valid, share) * valid[:, None],
        given_,
        eps=1e-5,
        atol=1e-4,
    )
