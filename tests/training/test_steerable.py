"""A target share is for policies that keep tokens with probability over one half."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import small
import torch
from torch import Tensor

from rss_rl.components import EVERYTHING, Component, Options
from rss_rl.config import RunConfig, parse_config
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.models.inputs import tensor_batch
from rss_rl.policies.distributions import IndependentBits
from rss_rl.policies.policy import PolicyInputs, PolicySetup
from rss_rl.policies.rss import RSSOptions, RSSPolicy
from rss_rl.reading.models import build_prepared_models
from rss_rl.training.run import train
from rss_rl.training.selections import check_learns, reached_share

CPU = torch.device("cpu")


class LeastOptions(Options):
    least: float = 1 / 3


class KeepsLeast(IndependentBits):
    """Keeps tokens with probability over `least`."""

    least = 0.5

    @property
    def mode(self) -> Tensor:
        return self.probs > self.least


class RuleOfThird(RSSPolicy):
    """A plug-in that returns it."""

    def __init__(self, setup: PolicySetup, options: LeastOptions) -> None:
        super().__init__(setup, RSSOptions(hidden=4))
        self.least = options.least

    def forward(self, inputs: PolicyInputs) -> IndependentBits:
        found = KeepsLeast(super().forward(inputs).logits, inputs.valid, 1.0)
        found.least = self.least
        return found


RULE_OF_THIRD = Component(
    kind="policy",
    name="rule-of-third",
    help="Keeps what is over one third likely.",
    build=RuleOfThird,
    options=LeastOptions,
    capabilities=frozenset({"learns", "log_probs", "gates", "share"}),
)


def configured(tiny_config: RunConfig, **options: Any) -> RunConfig:
    tree = tiny_config.model_dump(mode="json")
    tree["policy"] = {"name": f"{__name__}:RULE_OF_THIRD", "options": options}
    tree["reward"]["target_share"] = 0.3
    return parse_config(tree, where="test", trust=EVERYTHING)


def test_another_rule_is_refused_before_the_first_update(
    tiny_config: RunConfig, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"target_share.*another rule.*`mode`"):
        list(train(configured(tiny_config), tmp_path / "run", stop=lambda: True))


def test_a_rule_that_differs_later_is_refused_then(tiny_config: RunConfig, tiny: Prepared) -> None:
    """At the start all probabilities may be on one side of both lines."""
    config = configured(tiny_config, least=0.1)
    models = build_prepared_models(config, tiny)
    policy: Any = models.policy
    batch = tensor_batch(tiny.split("train").batch(torch.arange(8).numpy()), CPU)
    for level, refused in ((3.0, False), (-1.0, True), (-4.0, False)):
        for module in policy.modules_by_role:
            torch.nn.init.constant_(module.score.weight, 0.0)
            torch.nn.init.constant_(module.score.bias, level)
        if refused:
            with pytest.raises(ConfigError, match="another rule"):
                reached_share(models, config, models.policy_inputs(batch), 0.3)
            with pytest.raises(ConfigError, match="another rule"):
                check_learns(models, config, batch)
            continue
        check_learns(models, config, batch)
        kept = reached_share(models, config, models.policy_inputs(batch), 0.3)
        assert kept["selection/thresholded_kept"] == pytest.approx(float(level > 0))


@pytest.mark.parametrize(
    "policy",
    [
        {"name": "rss"},
        {"shared": True},
        {"name": "iterative", "cell": "gru"},
        {"name": "hardkuma"},
        {"name": "smooth"},
    ],
)
def test_built_in_policies_keep_the_rule(
    policy: dict[str, Any], tiny_config: RunConfig, tiny: Prepared
) -> None:
    given = small.policy_config(**policy).model_dump(mode="json")
    tree = tiny_config.model_dump(mode="json") | {"policy": given}
    tree["reward"]["target_share"] = 0.3
    config = parse_config(tree, where="test")
    models = build_prepared_models(config, tiny)
    with torch.no_grad():
        for name, parameter in models.policy.named_parameters():
            if name.endswith("weight"):
                parameter.mul_(5)
    batch = tensor_batch(tiny.split("train").batch(torch.arange(40).numpy()), CPU)
    check_learns(models, config, batch)
    reached = reached_share(models, config, models.policy_inputs(batch), 0.3)
    assert 0 < reached["selection/thresholded_kept"] < 1
