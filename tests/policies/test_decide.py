"""Selection and probabilities together are those of both methods, from logits computed once."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch
from torch import Tensor

from rss_rl.policies.build import build_policy
from rss_rl.policies.decide import decide
from rss_rl.policies.protocol import PolicySetup
from rss_rl.policies.rss import RSSModules, RSSOptions, RSSPolicy

SIZE = 5
NAMES = {"rss": {}, "top-k": {"share": 0.4}, "hardkuma": {}, "iterative": {}, "bernoulli": {}}


def given(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    valid = torch.arange(6) < torch.tensor([[6], [2], [0], [4]])
    return torch.randn(4, 6, SIZE, generator=generator) * valid[..., None], valid


def policy_of(name: str) -> Any:
    torch.manual_seed(1)
    return build_policy(small.policy_config(name=name, options=NAMES[name]), SIZE, "relu")


@pytest.mark.parametrize("name", NAMES)
def test_both_are_what_the_methods_say(name: str) -> None:
    policy, (embedded, valid) = policy_of(name), given()
    selection, probabilities = decide(policy, embedded, valid)
    assert torch.equal(selection, policy.threshold(embedded, valid))
    assert torch.equal(probabilities, policy.probabilities(embedded, valid))


@pytest.mark.parametrize("name", ["rss", "top-k", "hardkuma"])
def test_logits_are_computed_once_for_the_same_tokens(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, calls, compute = policy_of(name), list[Tensor](), RSSModules._compute

    def counted(self: RSSModules, embedded: Tensor, valid: Tensor) -> Tensor:
        calls.append(embedded)
        return compute(self, embedded, valid)

    monkeypatch.setattr(RSSModules, "_compute", counted)
    decide(policy, *given())
    assert len(calls) == 1
    decide(policy, *given(1))
    assert len(calls) == 2
    embedded, valid = given()
    policy.threshold(embedded, valid)
    policy.probabilities(embedded, valid)
    assert len(calls) == 4  # nothing is remembered elsewhere


class Inverted(RSSPolicy):
    """Keeps what its parent leaves out, and reads other tokens to say so."""

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        return (self.probabilities(-embedded, valid) <= 0.5) & valid[:, None]


def test_a_policy_with_a_rule_of_its_own_is_asked_for_it() -> None:
    torch.manual_seed(2)
    policy = Inverted(PolicySetup(SIZE, "relu"), RSSOptions(hidden=4))
    embedded, valid = given()
    selection, probabilities = decide(policy, embedded, valid)
    assert torch.equal(selection, policy.threshold(embedded, valid))
    assert torch.equal(probabilities, policy.probabilities(embedded, valid))


def test_what_was_remembered_is_forgotten_after_an_error() -> None:
    policy, (embedded, valid) = policy_of("rss"), given()
    with pytest.raises(RuntimeError):
        decide(policy, embedded[..., :-1], valid)
    before = policy.probabilities(embedded, valid)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1)
    assert not torch.equal(policy.probabilities(embedded, valid), before)
