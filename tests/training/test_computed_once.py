"""In an update the policy reads its batch once, and learns what it would learn by reading it anew.

Its gates or log-probs, expected costs, the selections that the classifier learns from, and the
share that it has reached all follow from the same logits.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from rss_rl.config import RunConfig, parse_config
from rss_rl.data.store import Prepared
from rss_rl.policies.rss import RSSModules
from rss_rl.rollouts.backend import LocalBackend
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import build_prepared_models
from rss_rl.training import learner as module
from rss_rl.training.learner import LocalLearner
from rss_rl.training.session import Session

POLICIES = {
    "rss by rewards": ("rss", "reinforce"),
    "rss by gates": ("rss", "pathwise"),
    "smooth by gates": ("smooth", "pathwise"),
    "hardkuma by gates": ("hardkuma", "pathwise"),
    "rss that reads the example": ("rss", "reinforce", "example"),
}


def session(
    tiny_config: RunConfig, tiny: Prepared, policy: str, estimator: str, reads: str = "sentence"
) -> Session:
    """Of a run that co-trains with a target share."""
    tree = tiny_config.model_dump(mode="json")
    tree["policy"] = {"name": policy, "reads": reads, "options": {"hidden": 5}}
    tree["learner"]["estimator"] = estimator
    tree["reward"]["target_share"] = 0.3
    tree["phases"] = tree["phases"][2:]
    config = parse_config(tree, where="test")
    sampler = Sampler(config, build_prepared_models(config, tiny), tiny.split("train"))
    return Session(config, tiny, LocalLearner(config, tiny), lambda: LocalBackend(sampler))


@pytest.mark.parametrize("names", POLICIES.values(), ids=POLICIES)
def test_an_update(
    names: tuple[str, ...], tiny_config: RunConfig, tiny: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    compute, learn = RSSModules._compute, LocalLearner.update

    def counted(self: RSSModules, embedded: Tensor, valid: Tensor) -> Tensor:
        calls.append(len(embedded))
        return compute(self, embedded, valid)

    def counting(self: LocalLearner, task: Any) -> dict[str, float]:
        calls.clear()  # a sampler's
        return learn(self, task)

    monkeypatch.setattr(RSSModules, "_compute", counted)
    monkeypatch.setattr(LocalLearner, "update", counting)
    once, anew = (session(tiny_config, tiny, *names) for _ in range(2))
    for _ in range(3):
        once.update()
        assert len(calls) == tiny.sentences
        with monkeypatch.context() as patched:
            patched.setattr(module, "remembering", nullcontext)
            anew.update()
        assert len(calls) > 2 * tiny.sentences
    assert isinstance(once.learner, LocalLearner)
    assert isinstance(anew.learner, LocalLearner)
    for name in ("policy", "classifier"):
        mine, theirs = (getattr(s.learner.models, name).state_dict() for s in (once, anew))
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
