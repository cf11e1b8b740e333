"""RSS against a numpy twin, and what every stochastic policy must keep."""

from __future__ import annotations

from typing import Any

import encoder_twins
import numpy as np
import pytest
import small
import torch
import twins
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import parameter_count
from torch import Tensor

from rss_rl.config import load_config
from rss_rl.packaged import find_config
from rss_rl.policies.build import build_policy
from rss_rl.policies.policy import PolicySetup
from rss_rl.policies.rss import RSSModule, RSSModules, RSSOptions, RSSPolicy
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES

learnable = pytest.mark.parametrize("shared", [False, True], ids=["two modules", "one module"])


def uniforms(valid: Tensor, samples: int = 3, key: int = stream_key(0, "test")) -> Tensor:
    rows = np.arange(len(valid))
    return torch.from_numpy(keyed_uniforms(key, rows, samples, ROLES, valid.shape[1]))


@pytest.mark.parametrize("activation", ["relu", "elu"])
@settings(max_examples=20)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 10**6))
def test_probabilities_equal_the_formula(activation: str, lengths: list[int], seed: int) -> None:
    sizes = small.EMBEDDING, small.HIDDEN
    setup = PolicySetup(sizes[0], activation)
    policy = RSSPolicy(setup, RSSOptions(hidden=sizes[1])).double()
    small.randomise(policy, seed)
    inputs = small.inputs(*lengths, seed=seed)
    embedded = inputs.vectors
    result = policy(inputs).probs.detach().numpy()
    for role, module in enumerate(policy.modules_by_role):
        p = twins.parameters(module)
        for row, n in enumerate(lengths):
            wanted = twins.rss(embedded[row, :n].numpy(), p, activation)
            np.testing.assert_allclose(result[row, role, :n], wanted, rtol=1e-10)
            assert not result[row, role, n:].any()


def test_log_prob_is_the_product_of_the_twins_probabilities() -> None:
    policy = small.policy()
    inputs = small.inputs(4, 2)
    valid = inputs.valid
    selection, log_prob = policy(inputs).sample(uniforms(valid))
    chance = policy(inputs).probs.detach().numpy()
    for k in range(3):
        for row in range(2):
            real = valid[row].numpy()
            bits, p = selection[k, row].numpy()[:, real], chance[row][:, real]
            result = log_prob[k, row].detach().numpy()
            np.testing.assert_allclose(np.exp(result[:, real]), np.where(bits, p, 1 - p))
            assert not result[:, ~real].any()


def test_a_shared_module_gives_both_roles_one_bit_that_counts_once() -> None:
    policy = small.policy(shared=True)
    inputs = small.inputs(4, 2)
    valid = inputs.valid
    selection, log_prob = policy(inputs).sample(uniforms(valid))
    assert selection.shape == (3, 2, 2, 4)
    assert torch.equal(selection[:, :, 0], selection[:, :, 1])
    assert 0 < int(selection.sum()) < selection.numel()
    p = policy(inputs).probs.detach()
    assert torch.equal(p[:, 0], p[:, 1])
    for k in range(3):
        bits = selection[k, 1, 0, :2]
        wanted = torch.where(bits, p[1, 0, :2], 1 - p[1, 0, :2]).log().sum()
        torch.testing.assert_close(log_prob[k, 1].detach().sum(), wanted)
        assert not log_prob[k, 1, 1].any()
    entropy = policy(inputs).evaluate(selection).entropy
    q = p[1, 0, :2]
    torch.testing.assert_close(entropy[1].detach(), -(q * q.log() + (1 - q) * (1 - q).log()).mean())


def test_roles_have_untied_modules() -> None:
    policy = small.policy()
    inputs = small.inputs(4)
    p = policy(inputs).probs
    assert (p[:, 0] - p[:, 1]).abs().min() > 1e-4
    before = p.detach().clone()
    with torch.no_grad():
        policy.modules_by_role[1].score.bias += 1.0  # type: ignore[union-attr, operator]
    after = policy(inputs).probs.detach()
    assert torch.equal(after[:, 0], before[:, 0])
    assert (after[:, 1] > before[:, 1]).all()


@learnable
def test_a_token_is_selected_when_its_uniform_is_below_its_probability(shared: bool) -> None:
    policy = small.policy(shared=shared)
    inputs = small.inputs(5, 1, 3)
    valid = inputs.valid
    drawn = uniforms(valid)
    wanted = (drawn < policy(inputs).probs) & valid[:, None]
    if shared:
        wanted = wanted[:, :, :1].expand(-1, -1, 2, -1)
    assert torch.equal(policy(inputs).sample(drawn).selection, wanted)


def test_threshold_takes_what_is_more_likely_than_not() -> None:
    policy = small.policy()
    inputs = small.inputs(6, 3)
    valid = inputs.valid
    p = policy(inputs).probs
    assert torch.equal(policy(inputs).mode, p > 0.5)
    assert 0 < int(policy(inputs).mode.sum()) < int(2 * valid.sum())


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.05])
def test_initial_probability(probability: float) -> None:
    module = RSSModule(small.EMBEDDING, small.HIDDEN, "relu", probability)
    torch.nn.init.zeros_(module.score.weight)
    embedded, valid = small.inputs(3)[:2]
    chance = torch.sigmoid(module(embedded.float(), valid))
    torch.testing.assert_close(chance, torch.full((1, 3), probability))


def test_parameter_counts() -> None:
    for shared, wanted in ((False, 541_202), (True, 270_601)):
        policy = RSSPolicy(PolicySetup(300, "elu"), RSSOptions(shared=shared))
        assert parameter_count(policy) == wanted


@pytest.mark.parametrize("name", ["own", "own_long", "own_phrases"])
def test_a_policy_of_own_texts_reads_no_verdict(name: str) -> None:
    """What it makes of a word does not depend on the others."""
    config = load_config(find_config(name)).policy
    built = build_policy(config, small.EMBEDDING, "relu").double()
    (modules,) = (part for part in built.modules() if isinstance(part, RSSModules))
    embedded, valid = small.inputs(7, 4)[:2]
    other = torch.cat([embedded[:, :1], -embedded[:, 1:]], 1)
    scores, changed = modules(embedded, valid), modules(other, valid)
    torch.testing.assert_close(changed[..., 0], scores[..., 0])
    assert not torch.allclose(changed, scores)


every_kind = pytest.mark.parametrize("kind", ["lstm", "gru"])
TWINS = {"lstm": encoder_twins.bilstm, "gru": encoder_twins.bigru}


@every_kind
def test_probabilities_are_rss_over_the_context(kind: Any) -> None:
    policy = small.policy(context=kind)
    assert isinstance(policy, RSSPolicy)
    inputs = small.inputs(4, 2)
    embedded = inputs.vectors
    chances = policy(inputs).probs.detach().numpy()
    for role, module in enumerate(policy.modules_by_role):
        p = twins.parameters(module)
        layer = twins.part(p, "context.")
        for row, n in enumerate((4, 2)):
            x = TWINS[kind](embedded[row, :n].numpy(), layer)
            np.testing.assert_allclose(chances[row, role, :n], twins.rss(x, p, "elu"), rtol=1e-9)


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
