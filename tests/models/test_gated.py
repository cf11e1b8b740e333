"""Gates between 0 and 1 are differentiable, and at 0 as well."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch

from rss_rl.ops.gated import union
from rss_rl.types import ROLES

ENCODERS: dict[str, dict[str, Any]] = {
    name: small.VARIANTS[name]
    for name in ("resan", "faithful", "source2token", "mean", "attention")
} | {"disan": {"encoder": "disan"}}


@pytest.mark.parametrize("settings", ENCODERS.values(), ids=ENCODERS)
def test_gradient_with_respect_to_gates(settings: dict[str, Any]) -> None:
    """Against finite differences, inside (0, 1)."""
    model = small.classifier(sentences=1, **settings)
    tokens, valid = small.sentences(4, 2)
    draw = torch.Generator().manual_seed(1)
    gates = torch.rand(2, 2, 4, generator=draw, dtype=torch.float64) * 0.8 + 0.1
    gates = (gates * valid[:, None]).requires_grad_()

    def logits(g: torch.Tensor) -> torch.Tensor:
        return model([tokens], [valid], [g * valid[:, None]])  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(logits, (gates,))
    (slope,) = torch.autograd.grad(logits(gates).square().sum(), gates)
    assert slope[0].abs().max() > 0


@pytest.mark.parametrize("bit", [0.0, 1.0])
def test_one_bit_for_both_roles_has_the_whole_gradient(bit: float) -> None:
    """A policy that draws one bit learns from the words it keeps as from those it leaves out."""
    gate = torch.tensor([[[bit]]], requires_grad=True)
    union(gate.expand(1, ROLES, 1)).sum().backward()
    assert gate.grad is not None
    assert gate.grad.item() == 1.0
