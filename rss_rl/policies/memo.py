"""What several methods of a policy have in common, computed once for a batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor


class _Known(NamedTuple):
    """A result; `given` and `owner` are kept, as their addresses are the key."""

    owner: object
    given: Sequence[Tensor]
    value: Tensor
    differentiable: bool


_memory: ContextVar[dict[Hashable, _Known] | None] = ContextVar("memory", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Within, what `once` is asked for is computed once; no parameter may change meanwhile."""
    if _memory.get() is not None:
        yield
        return
    token = _memory.set({})
    try:
        yield
    finally:
        _memory.reset(token)


def once(
    owner: object, compute: Callable[..., Tensor], *given: Tensor, key: Hashable = None
) -> Tensor:
    """`compute(*given)`; within `remembering` once for an owner, a key and the same tensors.

    A derived policy may replace single methods, so these are called, and only what they share is
    remembered. A result computed with gradients also serves callers without; not the reverse.

    Args:
        owner: the module whose weights it depends on, the same in training and evaluation mode.
        key: tells apart several computations of an owner from the same tensors.
    """
    memory = _memory.get()
    if memory is None:
        return compute(*given)
    kind = given[0].device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    place = id(owner), key, autocast, *map(id, given)
    known, wanted = memory.get(place), torch.is_grad_enabled()
    if known is None or (wanted and not known.differentiable):
        known = memory[place] = _Known(owner, given, compute(*given), wanted)
    # The same tensor each time where it can be: others may be remembered by it.
    return known.value.detach() if known.value.requires_grad and not wanted else known.value
