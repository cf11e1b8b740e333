"""The CRF policy: gates are its draws, log-probs those of the chain, and the pull is learnt or
given."""

from __future__ import annotations

import pytest
import small
import torch

from rss_rl.policies.crf import CRF
from rss_rl.policies.protocol import PolicySetup


@pytest.mark.parametrize("shared", [False, True])
def test_gates_are_the_bits_that_are_drawn(shared: bool) -> None:
    policy = small.policy(name="crf", shared=shared)
    vectors, valid = small.embedded(7, 3)
    generator = torch.Generator().manual_seed(1)
    uniforms = torch.rand(5, 2, 2, 7, generator=generator, dtype=torch.float64)
    gates = policy.gates(vectors, valid, uniforms)  # type: ignore[operator]
    sampled = policy.sample(vectors, valid, uniforms)
    assert torch.equal(gates.detach(), sampled.selection.double())
    evaluated = policy.evaluate(vectors, valid, sampled.selection)
    torch.testing.assert_close(evaluated.log_prob, sampled.log_prob)
    slopes = torch.autograd.grad(gates.sum(), list(policy.parameters()))
    assert all(slope.isfinite().all() for slope in slopes)
    assert any(slope.any() for slope in slopes)


@pytest.mark.parametrize("learns", [False, True])
def test_the_pull(learns: bool) -> None:
    options = CRF.parse({"pull": 1.5, "learns_pull": learns, "hidden": 3})
    policy = CRF.build(PolicySetup(small.EMBEDDING, "elu"), options)
    assert policy.pull.flatten().tolist() == [1.5, 1.5]
    assert ("pull" in dict(policy.named_parameters())) == learns
    assert "pull" in policy.state_dict()
