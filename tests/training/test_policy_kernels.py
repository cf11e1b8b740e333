"""A run's policy computes as `model.attention` says, as all around it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rss_rl.config import RunConfig
from rss_rl.ops.compilers import missing_compiler
from rss_rl.policies import rss
from rss_rl.rollouts.snapshot import Models, build_models
from rss_rl.types import LabelSpec

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))
WORDS, SIZE = 9, 6


def models(attention: str, policy: dict[str, Any]) -> Models:
    config = RunConfig.model_validate(
        {
            "data": "none",
            "phases": [{"name": "policy", "policy": True, "steps": 1}],
            "model": {"attention": attention, "hidden": 4},
            "policy": policy,
        }
    )
    vectors = np.ones((WORDS, SIZE), np.float32)
    return build_models(config, LabelSpec("classes", ("no", "yes")), 1, vectors, WORDS)


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"options": {"shared": True}},
        {"name": "hardkuma"},
        {"name": "top-k", "options": {"share": 0.5}},
        {"options": {"context": "lstm"}},
    ],
    ids=str,
)
def test_kernels_where_the_run_computes_with_them(
    policy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []
    kernels = rss.selector_logits

    def counted(*given: Any) -> Any:
        called.append(len(given[2]))
        return kernels(*given)

    monkeypatch.setattr(rss, "selector_logits", counted)
    tokens = torch.randn(2, 3, SIZE, generator=torch.Generator().manual_seed(0))
    valid = torch.ones(2, 3, dtype=torch.bool)
    found = []
    for attention in ("eager", "compiled"):
        inside = models(attention, policy).policy.modules()
        (module,) = (part for part in inside if isinstance(part, rss.RSSModules))
        found.append(module(tokens, valid))
    torch.testing.assert_close(*found)
    options = policy.get("options", {})
    modules = {"hardkuma": 4}.get(policy.get("name", ""), 1 if options.get("shared") else 2)
    assert called == ([] if "context" in options else [modules])
