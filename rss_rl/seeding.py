"""Random streams addressed by name and counter: equal addresses give equal numbers in any process.

No generator state is kept between calls, so there is none to save for resuming a run.
"""

from __future__ import annotations

import hashlib
from typing import cast

import numpy as np

from rss_rl.types import Array

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 8
"""Rounds of the Feistel network: four suffice for large halves, tiny ones need more."""


def stream_key(seed: int, *address: int | str) -> int:
    """A 63-bit key of a stream: the SHA-256 of the seed and the parts of its address."""
    text = "\x1f".join([str(int(seed)), *(str(part) for part in address)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *address: int | str) -> np.random.Generator:
    """A fresh Philox generator for the stream at `address`."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, *address)))


def mix(state: Array) -> Array:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014) in place, on uint64."""
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state


def _row_states(key: int, rows: Array) -> Array:
    """A state for each row of a stream, uint64 [B]."""
    with np.errstate(over="ignore"):
        return mix(rows.astype(np.uint64) * _GOLDEN + np.uint64(key))


def example_keys(seed: int, name: str, update: int, rows: Array) -> Array:
    """Keys of examples in one update, as `keyed_dropout` takes: each depends on its row alone.

    Args:
        seed: of the run. name: of the stream. update: of the run.
        rows: int64 [B], identity of each example.

    Returns:
        int64 [B], any of the 2^64 values.
    """
    return _row_states(stream_key(seed, name, update), rows).view(np.int64)


def keyed_uniforms(key: int, rows: Array, samples: int, roles: int, width: int) -> Array:
    """Uniform numbers in (0, 1) keyed by (key, row, sample, role, position).

    A token's numbers depend neither on the other rows of the call nor on the padded width, so an
    example draws the same selections alone and in a batch, in one shard or another.

    Args:
        key: the stream, from `stream_key`.
        rows: int64 [B], identity of each example.
        samples, roles, width: K, R and N.

    Returns:
        float32 [K, B, R, N].
    """
    row_state = _row_states(key, rows)  # [B]
    with np.errstate(over="ignore"):
        position = (
            np.arange(samples, dtype=np.uint64)[:, None, None] << np.uint64(40)
            | np.arange(roles, dtype=np.uint64)[None, :, None] << np.uint64(32)
            | np.arange(width, dtype=np.uint64)[None, None, :]
        )  # [K, R, N]
        state = mix((position[:, None] + np.uint64(1)) * _GOLDEN + row_state[None, :, None, None])
        state = mix(state + _GOLDEN)
    # 23 bits and a half step: exactly representable in float32 and never 0 or 1.
    fraction = (state >> np.uint64(41)).astype(np.float32)
    return (fraction + np.float32(0.5)) * np.float32(2.0**-23)


def keyed_permutation(key: int, size: int, positions: Array) -> Array:
    """The elements at `positions` of a pseudo-random permutation of 0 ... size - 1.

    No array of `size` is allocated. A Feistel network permutes the numbers of 2h bits, for the
    least h with 4^h >= size; a value >= size is permuted again until it is below, on average at
    most four times (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains",
    2002).

    Args:
        key: the permutation, from `stream_key`.
        size: at least 1.
        positions: int64, any shape, each in [0, size).

    Returns:
        int64 of the shape of `positions`.
    """
    half = np.uint64((max(size - 1, 1).bit_length() + 1) // 2)
    values = positions.astype(np.uint64).reshape(-1)
    waiting = np.arange(len(values))
    while len(waiting):
        values[waiting] = _feistel(key, half, values[waiting])
        waiting = waiting[values[waiting] >= size]
    return values.astype(np.int64).reshape(positions.shape)


def _feistel(key: int, half: np.uint64, values: Array) -> Array:
    """A permutation of the numbers of 2 * `half` bits."""
    mask = np.uint64((1 << int(half)) - 1)
    left, right = values >> half, values & mask
    for turn in range(_ROUNDS):
        with np.errstate(over="ignore"):
            keyed = (right + np.uint64(turn << 40)) * _GOLDEN + np.uint64(key)
            left, right = right, left ^ (mix(keyed) & mask)
    return cast(Array, left << half | right)
