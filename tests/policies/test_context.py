"""Recurrent context below RSS, against a twin that goes token by token."""

from __future__ import annotations

from typing import Any

import encoder_twins
import numpy as np
import pytest
import small
import torch
import twins
from model_configs import parameter_count
from torch import Tensor

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


@pytest.mark.parametrize(("kind", "gates"), [("none", 0), ("lstm", 4), ("gru", 3)])
def test_parameter_counts(kind: Any, gates: int) -> None:
    d = e = 300
    context = 2 * gates * (d * e + d * d + 2 * d)
    features = 3 * (2 * d if gates else e)
    module = RSSModule(e, d, "elu", 0.5, kind)
    assert parameter_count(module) == context + features * d + d + d + 1


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
