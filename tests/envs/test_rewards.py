"""Rewards against a slow numpy twin in the paper's notation, and the torch reward model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rss_rl.config import RewardConfig
from rss_rl.envs.rewards import cost_terms, role_shares
from rss_rl.reward_models.likelihood import ClassifierReward
from rss_rl.reward_models.reward_model import Rewards
from rss_rl.types import Batch


def twin(likelihood: Any, selections: Any, valid: Any, cost: float, penalty: str) -> list[Any]:
    """R_s = log p - lambda * penalty(z_h, z_d, n), token by token."""
    by_sentence = []
    for m in range(len(likelihood)):
        row = []
        for z, real in zip(selections, valid, strict=True):
            n = heads = dependents = 0
            for i in range(real.shape[1]):
                if real[m, i]:
                    n += 1
                    heads += int(z[m, 0, i])
                    dependents += int(z[m, 1, i])
            if n == 0:
                charged = 0.0
            elif penalty == "sum":
                charged = (heads + dependents) / n
            else:
                charged = heads / n * (dependents / n)
            row.append(float(likelihood[m]) - cost * charged)
        by_sentence.append(row)
    return by_sentence


@given(
    seed=st.integers(0, 2**31),
    scored=st.integers(1, 5),
    widths=st.lists(st.integers(0, 6), min_size=1, max_size=2),
    penalty=st.sampled_from(["sum", "product"]),
    cost=st.sampled_from([0.0, 0.02, 1.5]),
)
def test_rewards_equal_the_twin(
    seed: int, scored: int, widths: list[int], penalty: Any, cost: float
) -> None:
    draw = np.random.default_rng(seed)
    likelihood = -draw.random(scored).astype(np.float32)
    selections = [draw.random((scored, 2, n)) < 0.5 for n in widths]
    valid = [draw.random((scored, n)) < 0.7 for n in widths]
    valid[0][0] = False  # an empty sentence
    config = RewardConfig(sparsity_cost=cost, penalty=penalty)
    parts = Rewards({"likely": likelihood}, cost_terms(selections, valid, config))
    expected = np.array(twin(likelihood, selections, valid, cost, penalty))
    np.testing.assert_allclose(parts.by_sentence, expected, rtol=0, atol=1e-6)
    total = likelihood - (likelihood[:, None] - expected).sum(1)
    np.testing.assert_allclose(parts.total, total, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(parts.scores["likely"], likelihood)
    assert (
        parts.total.dtype
        == parts.by_sentence.dtype
        == parts.costs["sparsity_cost"].dtype
        == np.float32
    )


def test_wrong_shapes_are_refused() -> None:
    valid = np.ones((2, 3), bool)
    with pytest.raises(ValueError, match="selection must be bool"):
        role_shares(np.ones((2, 3), bool), valid)
    with pytest.raises(ValueError, match="selection must be bool"):
        role_shares(np.ones((2, 2, 3), np.int8), valid)


class Voter(nn.Module):
    """A classifier with dropout whose logits are the summed embeddings of the selected heads."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 2)
        self.dropout = nn.Dropout(0.5)
        self.frozen = nn.Dropout(0.5).eval()

    def forward(self, tokens: Any, valid: Any, selections: Any) -> Any:
        kept = (selections[0][:, 0] & valid[0]).float()
        logits = torch.einsum("mn,mnc->mc", kept, self.embedding(tokens[0]))
        return self.frozen(self.dropout(logits))

    def losses(self, logits: Any, labels: Any) -> Any:
        return nn.functional.cross_entropy(logits, labels, reduction="none")


def _batch() -> Batch:
    draw = np.random.default_rng(3)
    return Batch(
        rows=np.arange(4),
        tokens=(draw.integers(0, 50, (4, 5)),),
        valid=(draw.random((4, 5)) < 0.8,),
        labels=draw.integers(0, 2, 4),
    )


def test_the_classifier_is_scored_without_dropout_and_left_as_it_was() -> None:
    voter = Voter().train()
    voter.frozen.eval()
    batch, selection = _batch(), np.random.default_rng(4).random((4, 2, 5)) < 0.5
    reward_model = ClassifierReward(voter)
    scored = reward_model.score(batch, [selection])["log_likelihood"]
    assert voter.training
    assert voter.dropout.training
    assert not voter.frozen.training
    np.testing.assert_array_equal(scored, reward_model.score(batch, [selection])["log_likelihood"])
    weights = voter.embedding.weight.detach().numpy()
    kept = selection[:, 0] & batch.valid[0]
    logits = np.einsum("mn,mnc->mc", kept, weights[batch.tokens[0]])
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(scored, log_p[np.arange(4), batch.labels], atol=1e-6)
    assert scored.dtype == np.float32


def test_a_live_classifier_is_scored_with_its_present_weights() -> None:
    voter, batch, selection = Voter(), _batch(), np.ones((4, 2, 5), bool)
    reward_model = ClassifierReward(voter)
    before = reward_model.score(batch, [selection])["log_likelihood"]
    with torch.no_grad():
        voter.embedding.weight.mul_(-1.0)
    assert not np.array_equal(before, reward_model.score(batch, [selection])["log_likelihood"])
