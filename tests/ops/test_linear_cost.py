"""What attention on a grid costs: pairs that are weighed, and memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gridded import C, draw, planned
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rss_rl.ops import temporaries
from rss_rl.ops.grid_scan import Grid
from rss_rl.ops.linear_attention import linear_attention


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that an operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(one, Tensor):
                self.elements = max(self.elements, one.numel())
        return made


def spent(
    monkeypatch: pytest.MonkeyPatch, n: int, shares: tuple[float, float] = (1.0, 1.0)
) -> tuple[int, int]:
    """Pair features that are weighed, and elements of the largest tensor, forward and backward."""
    inputs, heads, dependents = case = draw(1, n, 2, shares=shares)
    plan = replace(planned(case, 1e-2), nodes=16, chunk=32)
    weighed = []
    whole = Grid.weights

    def weights(self: Grid, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        found = whole(self, one, other)
        weighed.append(found[1].numel())
        return found

    with monkeypatch.context() as patch, Largest() as largest:
        patch.setattr(Grid, "weights", weights)
        patch.setattr(temporaries, "_ELEMENTS", 1 << 12)  # more than a row, less than all
        result = linear_attention(*inputs, heads, dependents, "before", C, plan)
        torch.autograd.grad(result.sum(), inputs)
    return sum(weighed), largest.elements


def test_time_and_memory_are_linear_in_length(monkeypatch: pytest.MonkeyPatch) -> None:
    work, largest = zip(*(spent(monkeypatch, n) for n in (128, 512)), strict=True)
    assert work[1] <= 4.2 * work[0]
    assert largest[1] <= 4.2 * largest[0]
    assert largest[1] <= 4 * 512 * 2  # a few numbers a token and feature


def test_time_follows_the_selected_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    all_of_them = spent(monkeypatch, 512)[0]
    assert spent(monkeypatch, 512, (0.5, 1.0))[0] < 0.7 * all_of_them
    assert spent(monkeypatch, 512, (1.0, 0.5))[0] < 1.3 * all_of_them  # each head costs T + R
    assert spent(monkeypatch, 512, (0.25, 0.25))[0] < 0.4 * all_of_them
