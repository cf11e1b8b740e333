"""The attention that people are shown is the attention that the model computes with."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small import classifier, selection, sentences

from rss_rl.models import attention_map as module
from rss_rl.models.attention_map import attention_map
from rss_rl.models.directional import DirectionalAttention
from rss_rl.types import Array


def slow(direction: DirectionalAttention, embedded: Array, bits: Array, back: bool) -> Array:
    """P^j_i = mean_d softmax_i(c tanh((W1 h_i + W2 h_j + b)_d / c)), one pair at a time."""
    with torch.no_grad():
        hidden = direction.project(torch.from_numpy(embedded))
        by_dependent = direction.dependent_score(hidden).numpy()
        by_head = (direction.head_score(hidden) + direction.score_bias).numpy()
    count, c = len(embedded), direction.scale
    found = np.zeros((count, count))
    for j in np.flatnonzero(bits[0]):
        allowed = [i for i in np.flatnonzero(bits[1]) if (i < j if back else i > j)]
        for d in range(by_head.shape[1]):
            scores = [
                math.exp(c * math.tanh((by_dependent[i, d] + by_head[j, d]) / c)) for i in allowed
            ]
            for i, score in zip(allowed, scores, strict=True):
                found[j, i] += score / sum(scores) / by_head.shape[1]
    return found


@pytest.mark.parametrize("settings", [{}, {"keep_unselected": True}, {"encoder": "disan"}], ids=str)
def test_it_equals_the_slow_formula(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", 40)  # more than one block of heads
    model = classifier(sentences=1, **settings)
    tokens, valid = sentences(9)
    bits = selection(valid, 0.6, seed=2)[0]
    with torch.inference_mode():
        found = attention_map(model, tokens[0], bits)
        embedded = model.embedding(tokens)[0].numpy()
    assert found is not None
    disan = settings.get("encoder") == "disan"
    roles = bits.any(0).expand(2, -1).numpy() if disan else bits.numpy()
    expected = sum(
        slow(direction, embedded, roles, back)
        for direction, back in zip(model.encoder.resa.directions, (True, False), strict=True)
    )
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert found.any()


def test_no_selection_is_no_attention() -> None:
    model = classifier(sentences=1)
    tokens, _ = sentences(4)
    found = attention_map(model, tokens[0], torch.zeros(2, 4, dtype=torch.bool))
    assert found is not None
    assert not found.any()
