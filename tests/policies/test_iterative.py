"""Iterative sampling against a twin that goes bit by bit, and against enumerated probabilities."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import small
import torch
import twins
from model_configs import model_config, parameter_count
from torch import Tensor
from twins import Parameters, linear, part, sigma, sigmoid

from rss_rl.config import PolicyConfig
from rss_rl.models.build import build_classifier
from rss_rl.policies.build import build_policy
from rss_rl.policies.iterative import IterativeOptions, IterativePolicy
from rss_rl.policies.policy import PolicySetup
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, LabelSpec


def step(a: np.ndarray, h: np.ndarray, p: Parameters) -> np.ndarray:
    """The state after reading a = [x_i; z_i]; the number of gate matrices tells the cell."""
    v = linear(a, part(p, "cell_input."))
    u_h = linear(h, part(p, "cell_state."))
    if len(v) == len(h):
        return np.tanh(v + u_h)
    v, u_h = v.reshape(3, -1), u_h.reshape(3, -1)
    reset, update = sigmoid(v[0] + u_h[0]), sigmoid(v[1] + u_h[1])
    return update * h + (1 - update) * np.tanh(v[2] + reset * u_h[2])


def conditional(x: np.ndarray, z: np.ndarray, p: Parameters, activation: str) -> np.ndarray:
    """p_i = p(z_i = 1 | x, z_1 .. z_{i-1}) for each i."""
    h = np.zeros(p["cell_state.weight"].shape[1])
    chances = np.zeros(len(x))
    for i, x_i in enumerate(x):
        seen = np.concatenate([h, x_i])
        hidden = sigma(linear(seen, part(p, "hidden.")), activation)
        chances[i] = sigmoid(linear(hidden, part(p, "score.")))[0]
        h = step(np.append(x_i, z[i]), h, p)
    return chances


def probability(x: np.ndarray, z: np.ndarray, p: Parameters, activation: str) -> float:
    """p(z | x), the product of the chances of its bits."""
    chances = conditional(x, z, p, activation)
    return float(np.prod(np.where(z, chances, 1 - chances)))


CELLS = ["rnn", "gru"]
every_cell = pytest.mark.parametrize("cell", CELLS)
either = pytest.mark.parametrize("shared", [False, True], ids=["two modules", "one module"])
LENGTHS = (5, 1, 3)


def iterative(**settings: Any) -> IterativePolicy:
    policy = small.policy(name="iterative", **settings)
    assert isinstance(policy, IterativePolicy)
    return policy


def uniforms(valid: Tensor, samples: int = 3) -> Tensor:
    key, rows = stream_key(0, "test"), np.arange(len(valid))
    return torch.from_numpy(keyed_uniforms(key, rows, samples, ROLES, valid.shape[1]))


@every_cell
@pytest.mark.parametrize("activation", ["relu", "elu"])
@either
def test_log_prob_is_that_of_the_twin(cell: Any, activation: str, shared: bool) -> None:
    options = IterativeOptions(hidden=small.HIDDEN, cell=cell, shared=shared)
    policy = IterativePolicy(PolicySetup(small.EMBEDDING, activation), options).double()
    small.randomise(policy)
    inputs = small.inputs(*LENGTHS)
    embedded, valid = inputs[:2]
    selection, log_prob = policy(inputs).sample(uniforms(valid))
    evaluated = policy(inputs).evaluate(selection)
    for k, (row, n) in itertools.product(range(3), enumerate(LENGTHS)):
        x, product = embedded[row, :n].numpy(), 1.0
        for role, module in enumerate(policy.modules_by_role):
            z, p = selection[k, row, role, :n].numpy(), twins.parameters(module)
            chances = conditional(x, z, p, activation)
            wanted = np.log(np.where(z, chances, 1 - chances))
            for result in (log_prob, evaluated.log_prob):
                given = result[k, row, role].detach().numpy()
                np.testing.assert_allclose(given[:n], wanted, rtol=1e-9, atol=1e-12)
                assert not given[n:].any()
            product *= probability(x, z, p, activation)
        whole = float(evaluated.log_prob[k, row].detach().sum())
        assert whole == pytest.approx(np.log(product), rel=1e-9)
        if shared:
            assert torch.equal(selection[k, row, 0], selection[k, row, 1])
            assert not log_prob[k, row, 1].any()


@every_cell
def test_the_probabilities_of_all_selections_sum_to_one_and_are_the_frequencies(cell: str) -> None:
    n, samples = 3, 20_000
    policy = iterative(cell=cell, shared=True)
    module: Any = policy.modules_by_role[0]
    with torch.no_grad():  # so that a bit matters to the next
        module.cell_input.weight[:, -1] *= 5
        module.hidden.weight[:, : small.HIDDEN] *= 3
        module.score.bias.zero_()
    inputs = small.inputs(n)
    valid = inputs.valid
    every = torch.tensor(list(itertools.product([False, True], repeat=n)))  # [8, 3]
    given = every[:, None, None].expand(-1, 1, ROLES, -1)
    chance = policy(inputs).evaluate(given).log_prob.sum((-1, -2, -3)).exp().detach()
    assert float(chance.sum()) == pytest.approx(1.0, abs=1e-12)
    with torch.no_grad():
        drawn = policy(inputs).sample(uniforms(valid, samples)).selection[:, 0, 0]
    shares = (drawn[:, None] == every).all(-1).double().mean(0)
    tolerance = 5 * 0.5 / samples**0.5
    assert float((shares - chance).abs().max()) < tolerance
    # Which independent bits with the same marginals would not pass.
    marginal = (chance[:, None] * every).sum(0)
    independent = torch.where(every, marginal, 1 - marginal).prod(-1)
    assert float((independent - chance).abs().max()) > tolerance


@every_cell
@either
def test_the_deterministic_pass_takes_each_bit_if_likely(cell: str, shared: bool) -> None:
    policy = iterative(cell=cell, shared=shared, seed=3)
    inputs = small.inputs(6, 2, 4)
    embedded, valid = inputs[:2]
    bits, chances = policy(inputs).mode, policy(inputs).probs
    assert bits.dtype == torch.bool
    assert bits.shape == chances.shape == (3, ROLES, 6)
    assert 0 < int(bits.sum()) < int(2 * valid.sum())
    assert torch.equal(bits, chances > 0.5)
    assert torch.equal(policy(inputs).mode, bits)
    for (row, n), role in itertools.product(enumerate((6, 2, 4)), range(ROLES)):
        module = policy.modules_by_role[0 if shared else role]
        z, p = bits[row, role, :n].numpy(), twins.parameters(module)
        wanted = conditional(embedded[row, :n].numpy(), z, p, "elu")
        np.testing.assert_allclose(chances[row, role, :n].detach().numpy(), wanted, rtol=1e-9)
        assert not chances[row, role, n:].any()


@every_cell
def test_entropy_over_all_selections_is_the_entropy(cell: str) -> None:
    """Weighted by their probability, the conditional entropies sum to that of the selection."""
    policy = iterative(cell=cell, shared=True)
    inputs = small.inputs(3)
    every = torch.tensor(list(itertools.product([False, True], repeat=3)))
    estimate = 0.0
    exact = 0.0
    for bits in every:
        evaluated = policy(inputs).evaluate(bits.expand(1, 1, ROLES, -1))
        log_prob = float(evaluated.log_prob.detach().sum())
        estimate += np.exp(log_prob) * float(evaluated.entropy.detach()[0]) * 3
        exact -= np.exp(log_prob) * log_prob
    assert estimate == pytest.approx(exact, rel=1e-9)


@every_cell
def test_later_bits_depend_on_earlier_ones_and_not_the_other_way(cell: str) -> None:
    policy = iterative(cell=cell)
    inputs = small.inputs(4)
    bits = torch.zeros(2, 1, ROLES, 4, dtype=torch.bool)
    bits[1, :, 0, 1] = True
    log_prob = policy(inputs).evaluate(bits).log_prob.detach()
    changed = (log_prob[0] != log_prob[1])[0]
    assert changed.tolist() == [[False, True, True, True], [False] * 4]


D, E = 300, 300
BIT = (D + E) * D + D + D + 1  # W, b_R, w, b
GATE = (E + 1) * D + D * D + D  # [x; z] and h to a gate, one bias
RESAN = 2_526_003  # of classifier with ReSAN and head, without a policy


@pytest.mark.parametrize(
    ("cell", "gates", "wanted", "millions"),
    [("rnn", 1, 3_248_405, 3.25), ("gru", 3, 3_970_805, 3.97)],
)
def test_parameter_counts(cell: Any, gates: int, wanted: int, millions: float) -> None:
    """The paper has 4.0 M, which a GRU comes near and its plain RNN does not."""
    labels = LabelSpec("classes", ("contradiction", "entailment", "neutral"))
    model = build_classifier(
        model_config(keep_unselected=True), labels, 2, np.zeros((4, E), np.float32), 4
    )
    policy = build_policy(PolicyConfig(name="iterative", options={"cell": cell}), E, "elu")
    count = parameter_count(model, without=model.embedding) + parameter_count(policy)
    assert count == RESAN + 2 * (BIT + gates * GATE) == wanted
    assert round(count / 1e6, 2) == millions


@pytest.mark.parametrize("probability", [0.5, 0.8])
def test_initial_probability(probability: float) -> None:
    options = IterativeOptions(hidden=small.HIDDEN, initial_probability=probability)
    policy = IterativePolicy(PolicySetup(small.EMBEDDING, "relu"), options)
    for module in policy.modules_by_role:
        torch.nn.init.zeros_(module.score.weight)  # type: ignore[union-attr, arg-type]
    embedded, valid = small.inputs(3)[:2]
    chances = policy(small.of_vectors(embedded.float(), valid)).probs
    torch.testing.assert_close(chances, torch.full((1, 2, 3), probability))
