"""The classifier's likelihood as reward, of the label or of a class that is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rss_rl.components import find_component
from rss_rl.config import load_config
from rss_rl.errors import ConfigError
from rss_rl.packaged import find_config
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import Array, Batch, LabelSpec

LABELS = LabelSpec("classes", ("no", "maybe", "yes"))


class Counting(nn.Module):
    """Logits that the number of kept tokens decides."""

    def forward(self, tokens: Any, valid: Any, selections: Any) -> Tensor:
        count = sum(chosen.any(1).sum(1) for chosen in selections)
        return torch.stack([count * 0.1, count * -0.3, count * 0.7], 1)

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, labels, reduction="none")


def score(labels: Array, **options: Any) -> dict[str, Array]:
    component = find_component("reward_model", "likelihood")
    model = component.build(RewardSetup(LABELS, 1, Counting()), component.parse(options))
    tokens = np.array([[2, 3, 4], [4, 3, 0]])
    bits = np.array([[1, 0, 1], [0, 1, 0]], dtype=bool)[:, None].repeat(2, 1)
    found: dict[str, Array] = model.score(
        Batch(np.arange(2), (tokens,), (tokens > 0,), labels), [bits]
    )
    return found


@pytest.mark.parametrize("complement", [0.0, 0.5])
def test_a_class_that_is_asked_for_takes_the_place_of_the_label(complement: float) -> None:
    labels, yes = np.array([0, 1]), np.array([2, 2])
    found = score(labels, of_class="yes", complement=complement)
    expected = score(yes, complement=complement)
    other = score(labels, complement=complement)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
        assert (found[name] != other[name]).all()


def test_the_class_must_be_one_of_the_data() -> None:
    with pytest.raises(ConfigError, match="no class 'yess'; did you mean 'yes'"):
        score(np.array([0, 1]), of_class="yess")


def test_gates_are_not_learnt_from_the_loss_of_another_class() -> None:
    asked = ["policy=gumbel", "reward.model.options.of_class=bird"]
    assert load_config(find_config("demo"), asked[:1]).estimator.can("gates")
    assert not load_config(find_config("demo"), asked).estimator.can("gates")
