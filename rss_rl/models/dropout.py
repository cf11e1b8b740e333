"""Dropout whose masks can be keyed by example, independent of the rest of the batch.

torch's dropout draws from a generator in the order of the batch, so a batch cut into shards gets
other masks than the whole. Under `keyed_dropout` the mask of an element is a hash of its example's
key, the number of the dropout call, its position and its feature: an example gets the same masks
alone or in a batch, padded or not, in one process or in several. Where rows are parts of examples
(the sentences of a passage), `part_keys` gives each part a key of its own. Where rows are packed
tokens, `packed_rows` says which. `drawing` and `evaluating` are for a while.

Legend: M examples, N positions, R rows, D features.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rss_rl.ops.linear_maps import LEVELS, Drop
from rss_rl.ops.native import has_kernels_for, missing_compiler
from rss_rl.ops.packing import Packed
from rss_rl.seeding import mix

_CALLS = 8
"""Dropout calls whose hashes are computed at once."""
_LANES = 4
"""16-bit uniform numbers in a 64-bit hash."""


def _signed(value: int) -> int:
    """An unsigned 64-bit constant as int64."""
    return value - (1 << 64) if value >> 63 else value


_alone = threading.RLock()
_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


class _Keys:
    """The keys of a forward pass, its number of dropout calls so far, and its packed rows.

    Hashes are computed for some calls at once.
    """

    def __init__(self, keys: Tensor) -> None:
        self.keys = keys
        self.calls = 0
        self.packed: Packed | None = None
        self._ahead: dict[Packed | int | None, Tensor] = {}

    def next_call(self, positions: Packed | int | None = None) -> Tensor:
        """int64 [M], mix(key + c G) of the next dropout call c; calls count from 1.

        Of these x, mix(x + n G) of positions n from 1: [M, N] of N positions, [R] of packed rows.
        """
        at = self.calls % _CALLS
        if not at:
            steps = _steps(_CALLS, self.keys.device, self.calls)
            self._ahead = {None: _mix(self.keys + steps[:, None])}
        self.calls += 1
        if positions not in self._ahead:
            by_call = self._ahead[None]
            if isinstance(positions, Packed):
                first = by_call - positions.starts[:-1] * _GOLDEN
                state = first[:, positions.sequence] + _steps(len(positions), by_call.device)
            else:
                state = by_call[..., None] + _steps(positions or 0, by_call.device)
            self._ahead[positions] = _mix(state)
        return self._ahead[positions][at]


_current: ContextVar[_Keys | None] = ContextVar("keyed_dropout", default=None)


@contextmanager
def keyed_dropout(keys: Tensor | None) -> Iterator[None]:
    """Within it, dropout in training mode draws by example; outside, as torch's dropout does.

    A forward pass calls its dropout layers in a fixed order, so the call's number identifies one.

    Args:
        keys: int64 [M], of the examples along dimension 0 of all values; None, which `part_keys`
            may return, changes nothing.

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
    """Within it, all values are [R, D], and a row gets the mask of its token in [M, N, D].

    There each sequence's tokens come first, without a gap. A nested `keyed_dropout` overrides it.

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

    They depend on the example's key, the part's number in it and the number of this call among the
    dropout calls, but not on other parts or other examples.

    Args:
        example: int64 [R], row of the example that each part is of.
        number: int64 [R], of the part in its example, from 0.
    """
    current = _current.get()
    if current is None:
        return None
    return _mix(current.next_call()[example] + (number + 1) * _GOLDEN)


def batch_seed() -> int | None:
    """A seed from the keys of all examples and the number of this call.

    For modules of other libraries, whose dropout draws from torch's generator: a resumed run draws
    the same masks, but they depend on the batch. None outside of `keyed_dropout`.
    """
    current = _current.get()
    if current is None:
        return None
    return int(_mix(current.next_call().sum()[None])) & (2**63 - 1)


def slot_keys(slots: int) -> Tensor | None:
    """Keys for the sentences of each slot, int64 [S, M].

    None outside of `keyed_dropout`, and with one slot, which needs no keys of its own.
    """
    current = _current.get()
    if current is None or slots == 1:
        return None
    device = current.keys.device
    numbers, examples = (torch.arange(n, device=device) for n in (slots, len(current.keys)))
    keys = part_keys(examples.repeat(slots), numbers.repeat_interleave(len(examples)))
    return None if keys is None else keys.view(slots, len(examples))


@contextmanager
def drawing(seed: int | None, cuda: bool = False) -> Iterator[None]:
    """Within it, torch's generator of this process begins at a seed, for one thread at a time.

    Args:
        seed: None changes nothing.
        cuda: the generators of its devices, too.
    """
    if seed is None:
        yield
        return
    with _alone, torch.random.fork_rng(None if cuda else []):
        torch.manual_seed(seed)
        yield


class Dropout(nn.Module):
    """Sets a share `rate` of the elements to 0 in training mode and scales the others up.

    Args:
        rate: in [0, 1); under `keyed_dropout` in steps of 2^-16.

    `kernels` set to True uses the package's CPU kernel where it can be compiled: one pass,
    bit-identical to torch's operations.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.kernels = False
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate lies in [0, 1), got {rate}")
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """[M, ..., D] to the same shape."""
        if not self.drops:
            return values
        drop = self.keyed(values)
        if drop is None:
            return F.dropout(values, self.rate)
        native = self.kernels and values.device.type == "cpu" and has_kernels_for(values.dtype)
        if native and missing_compiler() is None:
            return _Drop.apply(values, drop)  # type: ignore[no-any-return, no-untyped-call]
        kept = _kept(drop.keys, values, drop.dropped)
        return values * kept.to(values.dtype).mul_(drop.scale)

    def keyed(self, values: Tensor) -> Drop | None:
        """The keyed mask of this call; None if nothing is dropped, or not by key."""
        current = _current.get()
        if current is None or not self.drops:
            return None
        dropped = min(round(self.rate * LEVELS), LEVELS - 1)  # of the levels a lane can take
        return Drop(current.next_call(_positions(current, values)), dropped)

    @property
    def drops(self) -> bool:
        """Whether it is in training mode at a rate above 0."""
        return self.training and self.rate > 0

    def extra_repr(self) -> str:
        """The rate, for printing a model."""
        return f"rate={self.rate}"


def _positions(current: _Keys, values: Tensor) -> Packed | int:
    """The packed rows, or the number N of positions, of values [R, D] or [M, ..., D]."""
    count, tokens = len(current.keys), current.packed
    if tokens is None:
        if count != values.shape[0]:
            raise ValueError(f"{count} keys for values {tuple(values.shape)}")
        return math.prod(values.shape[1:-1])
    if count != len(tokens.starts) - 1 or values.shape[:-1] != tokens.position.shape:
        raise ValueError(
            f"{count} keys for {len(tokens)} rows of {len(tokens.starts) - 1} sequences"
            f" and values {tuple(values.shape)}"
        )
    return tokens


def _kept(by_position: Tensor, values: Tensor, dropped: int) -> Tensor:
    """bool, shape of values: whether an element's lane exceeds the lowest `dropped` of 2^16 levels.

    The hash of four adjacent features is mix(that of the position + f G), f their group from 1.
    """
    features = values.shape[-1]
    groups = _steps(-(-features // _LANES), by_position.device)
    # A sum without `out` need not be contiguous where a size is 0 or 1.
    hashes = by_position.new_empty(*by_position.shape, len(groups))  # [M, N, D / 4]
    _mix(torch.add(by_position[..., None], groups, out=hashes))
    # As signed numbers the lanes are uniform on [-2^15, 2^15).
    lanes = hashes.view(torch.int16) >= dropped - LEVELS // 2
    return lanes[..., :features].reshape(values.shape)


class _Drop(torch.autograd.Function):
    """The same in one pass on a CPU, bit-identical; the backward pass recomputes the masks."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, drop: Drop) -> Tensor:
        ctx.drop = drop
        return drop.applied(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.drop.applied(gradient), None


def _steps(count: int, device: torch.device, after: int = 0) -> Tensor:
    """n G of `count` numbers n from `after` + 1, in wrapping arithmetic, int64 [count]."""
    return torch.from_numpy(np.arange(after + 1, after + count + 1) * _GOLDEN).to(device)


def _mix(state: Tensor) -> Tensor:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014) in place, on int64."""
    if state.device.type != "cpu":
        return _mix_on_device(state)
    mix(state.numpy().view(np.uint64))  # numpy shifts without a sign, and takes half the time
    return state


def _mix_on_device(state: Tensor) -> Tensor:
    _fold(state, 30).mul_(_FIRST)
    _fold(state, 27).mul_(_SECOND)
    return _fold(state, 31)


def _fold(state: Tensor, shift: int) -> Tensor:
    """state ^ (state >>> shift); int64 shifts fill with the sign, which the mask removes."""
    return state.bitwise_xor_((state >> shift).bitwise_and_((1 << (64 - shift)) - 1))


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Evaluation mode within; on exit, each submodule returns to its previous mode."""
    training = [part for module in modules for part in module.modules() if part.training]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
