"""Smooth masks against their formula, and what they start at."""

from __future__ import annotations

import math

import pytest
import small
import torch

from rss_rl.errors import ConfigError
from rss_rl.policies.policy import PolicyInputs, PolicySetup
from rss_rl.policies.smooth import SMOOTH, SmoothPolicy, bumps
from rss_rl.testing import VOCABULARY


def test_logits() -> None:
    policy = small.policy(name="smooth")
    inner = policy
    assert isinstance(inner, SmoothPolicy)
    inputs = small.inputs(7, 3)
    vectors, valid = inputs[:2]
    found = policy(inputs).logits
    for row, tokens in enumerate((7, 3)):
        alone = vectors[row : row + 1, :tokens], valid[row : row + 1, :tokens]
        heights = inner.heights(*alone)
        wide = 0.5 + 15.5 * torch.sigmoid(inner.width).expand_as(heights)
        mean = heights.mean(-1, keepdim=True)
        wanted = inner.bias + mean + bumps(heights - mean, wide, 16.0)
        torch.testing.assert_close(found[row, :, :tokens], wanted[0])


@pytest.mark.parametrize(("probability", "width"), [(0.3, 4.0), (0.8, 10.0)])
def test_starts_where_it_is_told(probability: float, width: float) -> None:
    options = {"initial_probability": probability, "width": width}
    inner = SMOOTH.build(PolicySetup(small.EMBEDDING, "elu"), SMOOTH.parse(options))
    found = 0.5 + 15.5 * torch.sigmoid(inner.width)
    assert found.flatten().tolist() == pytest.approx([width] * 2)
    assert inner.bias.flatten().tolist() == pytest.approx(
        [math.log(probability / (1 - probability))] * 2
    )


def test_bumps_end_with_their_sentence() -> None:
    """Each sentence has the logits that it has without the bumps of the others."""
    policy = small.policy(name="smooth", options={"within": "sentence"})
    stop = VOCABULARY.index(".")
    ids = torch.tensor([[2, 3, stop, 4, 5, 6, stop, 2], [2, 3, 4, stop, 0, 0, 0, 0]])
    table = torch.randn(len(VOCABULARY), small.EMBEDDING, dtype=torch.float64)
    inputs = PolicyInputs(table[ids], ids > 0, ids, small.ENDS(ids))
    assert torch.equal(inputs.ends, ids == stop)
    found = policy(inputs).logits
    inner = policy
    assert isinstance(inner, SmoothPolicy)
    wide = 0.5 + 15.5 * torch.sigmoid(inner.width)
    for row, sentences in enumerate([[(0, 3), (3, 7), (7, 8)], [(0, 4)]]):
        tokens = sentences[-1][1]
        heights = inner.heights(table[ids[row : row + 1, :tokens]], ids[row : row + 1, :tokens] > 0)
        mean = heights.mean(-1, keepdim=True)
        for start, end in sentences:
            part = (heights - mean)[..., start:end]
            wanted = inner.bias + mean + bumps(part, wide.expand_as(part), 16.0)
            torch.testing.assert_close(found[row : row + 1, :, start:end], wanted)


def test_without_words_sentences_are_not_known() -> None:
    with pytest.raises(ConfigError, match="end a sentence") as raised:
        SMOOTH.build(PolicySetup(small.EMBEDDING, "elu"), SMOOTH.parse({"within": "sentence"}))
    assert raised.value.where == "policy.options.within"
