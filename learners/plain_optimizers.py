"""torch's optimisers without torch's compiler."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap

import torch


class WithoutCompiler(torch.optim.Optimizer):
    """Base class, placed before one of torch's optimisers, which keeps torch._dynamo out.

    torch wraps these methods for `torch.compile`, which is not used here, and the first call of any
    of them imports torch._dynamo: a quarter of the time until the first update of a small run.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """See `torch.optim.Optimizer.step`."""
        unwrap(super().step.__func__)(self, closure)  # type: ignore[attr-defined]


class PlainSGD(WithoutCompiler, torch.optim.SGD):
    """torch's SGD."""
