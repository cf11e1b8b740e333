"""Block self-attention against a twin that goes block by block, at every kind of block boundary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small
import torch
import twins
from model_configs import model_config, parameter_count
from torch import Tensor
from twins import Parameters, attention, before, dense, linear, part, sigmoid, source2token

from rss_rl.config import PolicyConfig
from rss_rl.models.build import build_classifier
from rss_rl.models.encoders.biblosan import BlockSelfAttention, BlockSettings
from rss_rl.policies.build import build_policy
from rss_rl.types import LabelSpec


def masked_self_attention(h: np.ndarray, p: Parameters, c: float, forward: bool) -> np.ndarray:
    """s_j over the i before (or after) j; 0 where there is none."""
    n = len(h)
    allowed = np.array([[before(i, j, forward) for i in range(n)] for j in range(n)]).reshape(n, n)
    w1_xi = h @ p["dependent_score.weight"].T
    w2_xj_b = h @ p["head_score.weight"].T + p["score_bias"]
    return attention(w1_xi, w2_xj_b, h, allowed, c)


def mblosa(
    x: np.ndarray,
    p: Parameters,
    activation: str,
    c: float,
    r: int,
    forward: bool,
    *,
    local: bool = True,
    across: bool = True,
) -> np.ndarray:
    """u of one direction: intra-block, inter-block, fusion."""
    h = dense(x, part(p, "project."), activation)
    blocks = [h[start : start + r] for start in range(0, len(h), r)]
    s = [masked_self_attention(block, part(p, "within."), c, forward) for block in blocks]
    joined = [h]
    if local:
        joined.append(np.concatenate(s))
    if across:
        q = part(p, "between.")
        v = np.stack([source2token(s_l, part(q, "pool."), activation) for s_l in s])
        o = masked_self_attention(v, part(q, "attention."), c, forward)
        g = sigmoid(linear(o, part(q, "gate_context.")) + linear(v, part(q, "gate_block.")))
        e = g * o + (1 - g) * v
        joined.append(np.stack([e[i // r] for i in range(len(h))]))
    y = np.concatenate(joined, 1)
    fused = dense(y, part(p, "fusion."), activation)
    g = sigmoid(linear(y, part(p, "fusion_gate.")))
    return g * fused + (1 - g) * h


def biblosan(
    x: np.ndarray, p: Parameters, activation: str, c: float, r: int, **parts: bool
) -> np.ndarray:
    """[mBloSA_fw; mBloSA_bw], then source2token."""
    u = [
        mblosa(x, part(p, f"context.directions.{k}."), activation, c, r, forward, **parts)
        for k, forward in enumerate((True, False))
    ]
    return source2token(np.concatenate(u, 1), part(p, "pool."), activation)


R = 3
LENGTHS = (1, 2, R, 2 * R, 2 * R + 1, 3 * R + 2, 0, R + 1)
"""n = 1, n < r, n = r, n = k r, n = k r + 1, more; and nothing at all."""
PARTS = {
    "whole": {},
    "w/o local": {"local": False},
    "w/o global": {"across": False},
}
every_form = pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)


def direction(
    *, forward: bool = True, length: int = R, dropout: float = 0.0, seed: int = 0, **parts: bool
) -> BlockSelfAttention:
    settings = BlockSettings(length, "elu", dropout, **parts)
    module = BlockSelfAttention(small.EMBEDDING, small.HIDDEN, settings, forward=forward).double()
    small.randomise(module, seed)
    return module


def sentences(*lengths: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Embeddings [M, N, E] that are not zero on padding, and which tokens are real."""
    _, valid = small.sentences(*lengths)
    draw = np.random.default_rng(seed).normal(size=(*valid.shape, small.EMBEDDING))
    return torch.from_numpy(draw), valid


@every_form
@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
@pytest.mark.parametrize("length", [1, 2, R, 100])
def test_a_direction_equals_its_twin(parts: dict[str, bool], forward: bool, length: int) -> None:
    module = direction(forward=forward, length=length, **parts)
    embedded, valid = sentences(*LENGTHS)
    result = module(embedded, valid).detach().numpy()
    p = twins.parameters(module)
    for row, n in enumerate(LENGTHS):
        if n:
            x = embedded[row, :n].numpy()
            wanted = mblosa(x, p, "elu", 5.0, length, forward, **parts)
            np.testing.assert_allclose(result[row, :n], wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("activation", ["relu", "elu"])
def test_biblosan_equals_its_twin(activation: str) -> None:
    model = small.classifier(activation=activation, encoder="biblosan",
                             block_length=R)  # fmt: skip
    tokens, valid = small.sentences(*LENGTHS)
    everything = valid[:, None].expand(-1, 2, -1)
    result = model._encode(tokens, valid, everything).detach().numpy()
    p, x = twins.parameters(model.encoder), model.embedding(tokens).detach().numpy()
    for row, n in enumerate(LENGTHS):
        wanted = biblosan(x[row, :n], p, activation, 5.0, R) if n else 0.0
        np.testing.assert_allclose(result[row], wanted, rtol=1e-9, atol=1e-10)


def test_vanilla_attention_equals_its_formula() -> None:
    model = small.classifier(encoder="attention")
    tokens, valid = small.sentences(4, 1, 0, 6)
    selection = small.selection(valid, 0.8, seed=1)
    result = model._encode(tokens, valid, selection).detach().numpy()
    p, x = twins.parameters(model.encoder.pool), model.embedding(tokens).detach().numpy()  # type: ignore[arg-type]
    for row, kept in enumerate((valid & selection.any(1)).numpy()):
        a = [
            float(twins.linear(twins.dense(x_i, twins.part(p, "hidden."), "elu"),
                               twins.part(p, "score."))[0])
            for x_i in x[row][kept]
        ]  # fmt: skip
        weights = np.exp(a) / np.exp(a).sum()
        wanted = sum((w * x_i for w, x_i in zip(weights, x[row][kept], strict=True)), np.zeros(5))
        np.testing.assert_allclose(result[row], wanted, rtol=1e-9, atol=1e-12)


SNLI = LabelSpec("classes", ("contradiction", "entailment", "neutral"))
TABLE: dict[str, tuple[dict[str, Any], int, float]] = {
    "480D Bi-BloSAN": ({}, 2_799_603, 2.8),
    "w/o local": ({"local": False}, 2_569_203, 2.5),
    "w/o global": ({"across": False}, 1_876_083, 1.8),
    "w/o mBloSA": ({"encoder": "source2token"}, 541_803, 0.54),
    "w/o mBloSA and source2token": ({"encoder": "attention"}, 451_804, 0.45),
}
"""The paper's ablations: settings, parameters, and what was published (millions).

With each direction 240 wide and the head's hidden layer 300. The published numbers are cut, not
rounded, at their last digit.
"""


@pytest.mark.parametrize("row", TABLE)
def test_parameter_counts_are_those_of_the_published_ablations(row: str) -> None:
    settings, wanted, published = TABLE[row]
    config = model_config(
        **{"encoder": "biblosan", "hidden": 240, "head_hidden": 300, "highway": False}
        | ({} if "encoder" in settings else {"block_length": 4})
        | settings
    )
    vectors = np.zeros((4, 300), np.float32)
    classifier = build_classifier(config, SNLI, 2, vectors, 4)
    policy = build_policy(PolicyConfig(name="select-all"), 300, "relu")
    assert parameter_count(policy) == 0
    assert parameter_count(classifier, without=classifier.embedding) == wanted
    assert abs(wanted / 1e6 - published) < 0.1
