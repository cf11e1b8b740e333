"""Several selections of a sentence at once: equal to each alone, and the common part only once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small
import torch
from compiling import needs_compiler
from torch import Tensor, nn

from rss_rl.models import embedding as embedding_module
from rss_rl.models.encoders.resan import ReSANEncoder
from rss_rl.reward_models.likelihood import ClassifierReward
from rss_rl.types import Batch

SAMPLES = 3


def several(valid: list[Tensor], share: float) -> list[Tensor]:
    """S x [SAMPLES * B, 2, N_s], random, with an empty and a full selection among them."""
    chosen = []
    for slot, mask in enumerate(valid):
        drawn = [small.selection(mask, share, seed=10 * slot + k) for k in range(SAMPLES)]
        drawn[0][0] = False
        drawn[1][0] = mask[0]
        chosen.append(torch.cat(drawn))
    return chosen


@pytest.mark.parametrize("share", [0.0, 0.2, 0.8, 1.0])
@pytest.mark.parametrize("settings", small.VARIANTS.values(), ids=small.VARIANTS)
def test_several_selections_equal_each_alone(settings: dict[str, Any], share: float) -> None:
    model = small.classifier(**settings)
    tokens, valid, _ = small.pairs((6, 2), (1, 7), (5, 5))
    selections = several(valid, share)
    together = model(tokens, valid, selections)
    for k in range(SAMPLES):
        alone = model(tokens, valid, [s[3 * k : 3 * k + 3] for s in selections])
        torch.testing.assert_close(together[3 * k : 3 * k + 3], alone, rtol=1e-11, atol=1e-13)


@needs_compiler
@pytest.mark.parametrize("attention", ["eager", "compiled"])
@pytest.mark.parametrize("keep_unselected", [True, False])
def test_the_common_part_is_computed_once(
    keep_unselected: bool, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_module, "_FEW", 0.0)  # each token is counted
    tokens, valid, _ = small.pairs((6, 7), (5, 4), (6, 5))
    selections, read = several(valid, 0.4), valid
    if not keep_unselected:  # what one of them keeps
        read = [chosen.any(1).view(SAMPLES, 3, -1).any(0) for chosen in selections]
    model = small.classifier(keep_unselected=keep_unselected, attention=attention)
    encoder, seen = model.encoder, list[int]()
    assert isinstance(encoder, ReSANEncoder)
    projection = encoder.resa.directions[0].project
    assert isinstance(projection, nn.Module)
    projection.register_forward_hook(lambda module, given, out: seen.append(len(given[0])))
    with torch.no_grad():
        model(tokens, valid, selections)
    assert seen == [sum(int(mask.sum()) for mask in read)]


@needs_compiler
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("keep_unselected", [True, False])
def test_gradients_of_several_selections_are_those_of_each(
    keep_unselected: bool, learns: bool
) -> None:
    model = small.classifier(keep_unselected=keep_unselected, attention="compiled")
    model.requires_grad_(learns)
    tokens, valid, _ = small.pairs((6, 2), (1, 7), (5, 5))
    selections = several(valid, 0.8)
    together = model(tokens, valid, selections)
    alone = torch.cat(
        [model(tokens, valid, [s[3 * k : 3 * k + 3] for s in selections]) for k in range(SAMPLES)]
    )
    torch.testing.assert_close(together, alone, rtol=1e-11, atol=1e-13)
    if learns:
        weights = torch.linspace(1, 2, alone.numel(), dtype=alone.dtype).view(alone.shape)
        parameters = list(model.parameters())
        for one, other in zip(
            torch.autograd.grad((together * weights).sum(), parameters, allow_unused=True),
            torch.autograd.grad((alone * weights).sum(), parameters, allow_unused=True),
            strict=True,
        ):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def batch_of(tokens: list[Tensor], valid: list[Tensor], rows: list[int]) -> Batch:
    return Batch(
        np.array(rows),
        tuple(t.numpy() for t in tokens),
        tuple(v.numpy() for v in valid),
        np.arange(len(rows)) % 3,
    )


def test_rewards_of_repeated_examples_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_module, "_FEW", 0.0)  # each token is counted
    model = small.classifier(keep_unselected=True, attention="eager")
    tokens, valid, _ = small.pairs((6, 2), (1, 7), (5, 5))
    selections = [s.numpy() for s in several(valid, 0.4)]
    batch, reward = batch_of(tokens, valid, [4, 9, 2]), ClassifierReward(model)
    read: list[int] = []
    model.embedding.register_forward_hook(
        lambda module, inputs, output: read.append(len(inputs[0]))
    )
    found = reward.score(batch.repeat(SAMPLES), selections)["log_likelihood"]
    assert read == [26]
    monkeypatch.setattr(type(model), "shares_sentences", False)
    alone = reward.score(batch.repeat(SAMPLES), selections)["log_likelihood"]
    assert read == [26, 78]
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-6)
