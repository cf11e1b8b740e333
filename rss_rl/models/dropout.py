"""Dropout whose masks can be keyed by example, whoever shares the batch.

torch's dropout takes its numbers from a generator in the order of the batch, so that a batch cut
into shards draws other masks than the whole. Under `keyed_dropout` the mask of an element is a hash
of its example's key, the number of the dropout call, its position and its feature: alone or in a
batch, padded or not, in one process or in several, an example meets the same masks. Where rows are
parts of examples (the sentences of a passage), `part_keys` gives each part a key of its own. Where
rows are tokens of many sequences without padding, `packed_rows` says which.

Legend: M examples, N positions, R rows, D features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rss_rl.ops.compilers import missing_compiler
from rss_rl.ops.dropping import LEVELS, Drop
from rss_rl.ops.packing import Packed

_LANES = 4
"""Uniform numbers of 16 bits that one hash of 64 bits gives."""
_NATIVE = (torch.float32, torch.float64)


def _signed(value: int) -> int:
    """An unsigned 64-bit constant as torch's int64 has it."""
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


class _Keys:
    """The keys of a forward pass, how many dropout calls it has made, and rows that are packed."""

    def __init__(self, keys: Tensor) -> None:
        self.keys = keys
        self.calls = 0
        self.packed: Packed | None = None


_current: ContextVar[_Keys | None] = ContextVar("keyed_dropout", default=None)


@contextmanager
def keyed_dropout(keys: Tensor | None) -> Iterator[None]:
    """Within it, dropout in training mode draws by example; outside, as torch's dropout does.

    A forward pass calls its dropout layers in one order, so the call's number identifies the layer.

    Args:
        keys: int64 [M], of the examples along dimension 0 of all that is dropped; None changes
            nothing, for what `part_keys` returns.

    Raises:
        ValueError: keys of another dtype or rank; in a dropout call, another M.
    """
    if keys is None:
        yield
        return
    if keys.dtype != torch.int64 or keys.ndim != 1:
        raise ValueError(f"keys must be int64 [M], got {keys.dtype} {tuple(keys.shape)}")
    token = _current.set(_Keys(keys))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def packed_rows(tokens: Packed) -> Iterator[None]:
    """Within it, all that is dropped is [R, D], and a row drops what its token would in [M, N, D].

    There each sequence's tokens come first, without a gap. A `keyed_dropout` within it hides it.

    Args:
        tokens: of M sequences, one for each key.
    """
    current = _current.get()
    if current is None:
        yield
        return
    before, current.packed = current.packed, tokens
    try:
        yield
    finally:
        current.packed = before


def part_keys(example: Tensor, number: Tensor) -> Tensor | None:
    """Keys for rows that are parts of examples, int64 [R]; None outside of `keyed_dropout`.

    They are functions of an example's key, of the part's number in it and of the place of this call
    among the dropout calls, so that neither other parts nor other examples change a part's masks.

    Args:
        example: int64 [R], row of the example that each part is of.
        number: int64 [R], of the part in its example, from 0.
    """
    current = _current.get()
    if current is None:
        return None
    call, current.calls = current.calls, current.calls + 1
    by_example = _mix(current.keys + _steps(call + 1, current.keys.device)[call])  # [M]
    return _mix(by_example[example] + (number + 1) * _GOLDEN)


def batch_seed() -> int | None:
    """A seed that follows from the keys of all examples and the place of this call.

    For modules of other libraries, whose dropout draws from torch's generator: what it draws is the
    same again when a run resumes, but not whoever shares the batch. None outside of
    `keyed_dropout`.
    """
    current = _current.get()
    if current is None:
        return None
    call, current.calls = current.calls, current.calls + 1
    keys = _mix(current.keys + _steps(call + 1, current.keys.device)[call])
    return int(_mix(keys.sum()[None])) & (2**63 - 1)


def slot_keys(slots: int) -> Tensor | None:
    """Keys for the sentences of each slot, int64 [S, M]; None where they need none of their own.

    So it is outside of `keyed_dropout`, and with one slot.
    """
    current = _current.get()
    if current is None or slots == 1:
        return None
    device = current.keys.device
    numbers, examples = (torch.arange(n, device=device) for n in (slots, len(current.keys)))
    found = part_keys(examples.repeat(slots), numbers.repeat_interleave(len(examples)))
    return None if found is None else found.view(slots, len(examples))


class Dropout(nn.Module):
    """Sets a share `rate` of the elements to 0 in training mode and scales the others up.

    Args:
        rate: in [0, 1); under `keyed_dropout` in steps of 2^-16.

    `kernels` set to True lets the package's kernel compute on a CPU where it can be compiled: one
    pass, and to the bit what torch's operations do.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.kernels = False
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate lies in [0, 1), got {rate}")
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """[M, ..., D] to the same shape."""
        drop = self.keyed(values)
        if drop is None:
            return F.dropout(values, self.rate, self.training)
        native = self.kernels and values.device.type == "cpu" and values.dtype in _NATIVE
        if native and missing_compiler() is None:
            return _Drop.apply(values, drop)  # type: ignore[no-any-return, no-untyped-call]
        kept = _kept(drop.keys, values, drop.dropped)
        return values * kept.to(values.dtype).mul_(drop.scale)

    def keyed(self, values: Tensor) -> Drop | None:
        """What `keyed_dropout` makes of this call; None where nothing is dropped, or not by key."""
        current = _current.get()
        if current is None or not self.drops:
            return None
        call, current.calls = current.calls, current.calls + 1
        dropped = min(round(self.rate * LEVELS), LEVELS - 1)  # of the levels a lane can take
        if current.packed is not None:
            return Drop(_of_rows(current.keys, call, current.packed, values), dropped)
        return Drop(_positions(current.keys, call, values), dropped)

    @property
    def drops(self) -> bool:
        """Not in evaluation, and not at a rate of 0."""
        return self.training and self.rate > 0

    def extra_repr(self) -> str:
        """The rate, for printing a model."""
        return f"rate={self.rate}"


def _positions(keys: Tensor, call: int, values: Tensor) -> Tensor:
    """int64 [M, N], mix(mix(key + c G) + n G) of call c and position n, which count from 1."""
    if len(keys) != values.shape[0]:
        raise ValueError(f"{len(keys)} keys for values {tuple(values.shape)}")
    by_example = _mix(keys + _steps(call + 1, keys.device)[call])  # [M]
    return _mix(by_example[:, None] + _steps(math.prod(values.shape[1:-1]), keys.device))


def _of_rows(keys: Tensor, call: int, tokens: Packed, values: Tensor) -> Tensor:
    """int64 [R], what `_positions` gives each row's token."""
    if len(keys) != len(tokens.starts) - 1 or values.shape[:-1] != tokens.position.shape:
        raise ValueError(
            f"{len(keys)} keys for {len(tokens)} rows of {len(tokens.starts) - 1} sequences,"
            f" which are {tuple(values.shape)}"
        )
    by_example = _mix(keys + _steps(call + 1, keys.device)[call])  # [M]
    return _mix(by_example[tokens.sequence] + (tokens.rank + 1) * _GOLDEN)


def _kept(by_position: Tensor, values: Tensor, dropped: int) -> Tensor:
    """bool, shape of values; each element's own lane decides with `dropped` levels of 2^16.

    The hash of four neighbouring features is mix(that of the position + f G), where the group of
    features f counts from 1.
    """
    features = values.shape[-1]
    groups = _steps(-(-features // _LANES), by_position.device)
    # A sum of its own choosing need not be contiguous where a size is 0 or 1.
    hashes = by_position.new_empty(*by_position.shape, len(groups))  # [M, N, D / 4]
    _mix(torch.add(by_position[..., None], groups, out=hashes))
    # As signed numbers the lanes are uniform on [-2^15, 2^15).
    lanes = hashes.view(torch.int16) >= dropped - LEVELS // 2
    return lanes[..., :features].reshape(values.shape)


class _Drop(torch.autograd.Function):
    """The same in one pass on a CPU, to the last bit; masks are made again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, drop: Drop) -> Tensor:
        ctx.drop = drop
        return drop.applied(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.drop.applied(gradient), None


def _steps(count: int, device: torch.device) -> Tensor:
    """G, 2 G, ... in wrapping arithmetic, int64 [count]."""
    return torch.arange(1, count + 1, device=device) * _GOLDEN


def _mix(state: Tensor) -> Tensor:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014) in place, on int64."""
    _fold(state, 30).mul_(_FIRST)
    _fold(state, 27).mul_(_SECOND)
    return _fold(state, 31)


def _fold(state: Tensor, shift: int) -> Tensor:
    """state ^ (state >>> shift); int64 shifts fill with the sign, which the mask takes away."""
    return state.bitwise_xor_((state >> shift).bitwise_and_((1 << (64 - shift)) - 1))
