"""Recurrent context below RSS, against a twin that goes token by token."""

from __future__ import annotations

from typing import Any

import encoder_twins
import numpy as np
import pytest
import small
import torch
import twins
from torch import Tensor

from rss_rl.models.build import parameter_count
from rss_rl.policies.rss import RSSModule, RSSPolicy

every_kind = pytest.mark.parametrize("kind", ["lstm", "gru"])
TWINS = {"lstm": encoder_twins.bilstm, "gru": encoder_twins.bigru}


def sentences(*lengths: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    _, valid = small.sentences(*lengths, seed=seed)
    draw = np.random.default_rng(seed).normal(size=(*valid.shape, small.EMBEDDING))
    return torch.from_numpy(draw), valid


@every_kind
def test_probabilities_are_rss_over_the_context(kind: Any) -> None:
    policy = small.policy(context=kind)
    assert isinstance(policy, RSSPolicy)
    embedded, valid = sentences(4, 2)
    chances = policy(embedded, valid).probs.detach().numpy()
    for role, module in enumerate(policy.modules_by_role):
        p = twins.parameters(module)
        layer = twins.part(p, "context.")
        for row, n in enumerate((4, 2)):
            x = TWINS[kind](embedded[row, :n].numpy(), layer)
            np.testing.assert_allclose(chances[row, role, :n], twins.rss(x, p, "elu"), rtol=1e-9)


@every_kind
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_an_empty_shard_gives_every_parameter_a_gradient(kind: Any, shape: tuple[int, int]) -> None:
    """Learners in a group wait for the gradient of every parameter from each of them."""
    policy = small.policy(context=kind)
    valid = torch.ones(shape, dtype=torch.bool)
    embedded = torch.zeros(*shape, small.EMBEDDING, dtype=torch.float64)
    bits = torch.ones(3, shape[0], 2, shape[1], dtype=torch.bool)
    evaluated = policy(embedded, valid).evaluate(bits)
    (evaluated.log_prob.sum() + evaluated.entropy.sum()).backward()
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


@every_kind
def test_lower_precision_returns_single_precision(kind: Any) -> None:
    policy = small.policy(context=kind, double=False)
    embedded, valid = sentences(4, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = policy(embedded.float(), valid).probs
    rough.sum().backward()
    assert rough.dtype == torch.float32
    exact = policy(embedded.float(), valid).probs
    torch.testing.assert_close(rough, exact, rtol=0, atol=0.05)


@pytest.mark.parametrize(("kind", "gates"), [("none", 0), ("lstm", 4), ("gru", 3)])
def test_parameter_counts(kind: Any, gates: int) -> None:
    d = e = 300
    context = 2 * gates * (d * e + d * d + 2 * d)
    features = 3 * (2 * d if gates else e)
    module = RSSModule(e, d, "elu", 0.5, kind)
    assert parameter_count(module) == context + features * d + d + d + 1


def test_parameter_counts_of_convolutions_and_of_attention() -> None:
    e, d, window = 300, 100, 5
    convolved = RSSModule(e, d, "elu", 0.5, "conv")
    layers = (e * d + d) + 2 * (window * d * 2 * d + 2 * d)
    assert parameter_count(convolved) == layers + 3 * d * d + d + d + 1
    attending = RSSModule(e, d, "elu", 0.5, "none", "learnt")
    assert parameter_count(attending) == 2 * (e * e + e) + 3 * e * d + d + d + 1


def test_what_attention_pools_is_what_source2token_does() -> None:
    torch.manual_seed(0)
    embedded, valid = sentences(4, 2)
    module = RSSModule(embedded.shape[-1], 3, "elu", 0.5, "none", "learnt").double()
    pool = module.pool(embedded, valid)
    shown = torch.cat([embedded, pool[:, None].expand_as(embedded), embedded * pool[:, None]], -1)
    wanted = module.score(torch.nn.functional.elu(module.hidden(shown)))[..., 0]
    found = module(embedded, valid)
    torch.testing.assert_close(found[valid], wanted[valid])


def test_without_a_pool_a_token_is_read_alone() -> None:
    torch.manual_seed(0)
    module = RSSModule(5, 3, "elu", 0.5, "none", "none").double()
    assert parameter_count(module) == 5 * 3 + 3 + 3 + 1
    embedded, valid = torch.randn(2, 4, 5).double(), torch.ones(2, 4, dtype=torch.bool)
    changed = embedded.clone()
    changed[:, 1:] = torch.randn(2, 3, 5)
    before, after = module(embedded, valid), module(changed, valid)
    assert torch.equal(after[:, 0], before[:, 0])
    assert not torch.isclose(after[:, 1:], before[:, 1:]).any()
    reads_mean = RSSModule(5, 3, "elu", 0.5).double()
    assert not torch.equal(reads_mean(changed, valid)[:, 0], reads_mean(embedded, valid)[:, 0])


@every_kind
def test_gates_begin_glorot_uniform_and_biases_zero(kind: Any) -> None:
    torch.manual_seed(0)
    layer = RSSModule(200, 100, "elu", 0.5, kind).context.recurrence
    bound = (6 / 300) ** 0.5
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            assert not parameter.detach().any(), name
        elif "weight_ih" in name:
            assert 0.97 * bound < float(parameter.detach().abs().max()) <= bound, name
