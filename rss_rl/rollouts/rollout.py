"""Rollouts: what a sampler sends to the learner, as one Arrow stream.

Tokens are not sent: a rollout has row numbers, and the learner reads them from the prepared data.

Legend: K selections an example, B examples of the shard, M = K * B (sample-major), S sentences,
N_s tokens of the shard's longest sentence in slot s.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from rss_rl.reward_models.reward_model import Rewards
from rss_rl.types import Array


@dataclass(frozen=True, eq=False)
class Job:
    """A shard of an update; its result depends only on these fields and the snapshot.

    A job is equal to itself only.

    rows         int64 [B]
    selections   K
    scored       True = the selections are scored
    thresholded  True = the thresholded selections are scored as well
    bitwise      True = log-probs of single bits are sent, too, for corrections that need them
    antithetic   True = selections in pairs, see `selection_uniforms`
    """

    update: int
    shard: int
    rows: Array
    selections: int
    scored: bool
    thresholded: bool
    bitwise: bool = False
    antithetic: bool = False

    def packed(self) -> list[Any]:
        """As plain values, which Ray sends without pickling: that would take most of the time."""
        values = [getattr(self, field.name) for field in fields(self)]
        return [v.tobytes() if isinstance(v, np.ndarray) else v for v in values]

    @classmethod
    def unpacked(cls, values: list[Any]) -> Job:
        """The inverse of `packed`."""
        update, shard, rows, *others = values
        return cls(update, shard, np.frombuffer(rows, np.int64), *others)


_EXAMPLES_FIRST = "rows", "thresholded/"
"""Arrays without K, whose first axis is B."""
_BY_TOKEN = "selections", "bit_log_prob"
"""Arrays whose last axis is N_s."""


@dataclass(frozen=True)
class Rollout:
    """Scored selections of B examples.

    rows            int64 [B]
    selections      S x bool [K, B, 2, N_s]
    log_prob        float32 [K, B, S], of the behaviour policy
    terms           of the rewards, [K, B]; there are none if not scored
    thresholded     float32 [B, S], reward of the thresholded selection; None if not requested
    version         of the behaviour policy
    bit_log_prob    S x float32 [K, B, 2, N_s], 0 on padding; empty if not requested
    """

    rows: Array
    selections: tuple[Array, ...]
    log_prob: Array
    terms: Rewards
    thresholded: Array | None
    version: int
    bit_log_prob: tuple[Array, ...] = ()

    def arrays(self) -> dict[str, Array]:
        """All arrays; those of which there are several under `FIELD/NAME`, by name or by slot."""
        several: dict[str, Mapping[Any, Array]] = {
            "selections": dict(enumerate(self.selections)),
            "scores": self.terms.scores,
            "costs": self.terms.costs,
            "bit_log_prob": dict(enumerate(self.bit_log_prob)),
            "thresholded": {} if self.thresholded is None else {"": self.thresholded},
        }
        return {"rows": self.rows, "log_prob": self.log_prob} | {
            f"{field}/{name}": values
            for field, named in several.items()
            for name, values in named.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], version: int) -> Rollout:
        """The inverse of `arrays`."""
        under: dict[str, dict[str, Array]] = defaultdict(dict)
        for key, values in arrays.items():
            field, _, name = key.partition("/")
            under[field][name] = values
        return cls(
            arrays["rows"],
            tuple(under["selections"].values()),
            arrays["log_prob"],
            Rewards(under["scores"], under["costs"]),
            under["thresholded"].get(""),
            version,
            tuple(under["bit_log_prob"].values()),
        )

    def to_bytes(self) -> bytes:
        """As an Arrow stream of one row, with a cell for each array; selections as packed bits.

        A stream, because Ray takes five times as long to send a record batch.
        """
        arrays = self.arrays()
        schema = pa.schema(
            [_field(name, values) for name, values in arrays.items()],
            metadata={"version": str(self.version)},
        )
        cells = [pa.array([_cell(values)], pa.large_binary()) for values in arrays.values()]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.record_batch(cells, schema=schema))
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def from_bytes(cls, stream: bytes) -> Rollout:
        """The inverse of `to_bytes`."""
        with pa.ipc.open_stream(stream) as reader:
            batch = reader.read_next_batch()
        cells = zip(batch.schema, batch.columns, strict=True)
        arrays = {field.name: _array(field, column[0]) for field, column in cells}
        return cls.from_arrays(arrays, int(batch.schema.metadata[b"version"]))


def _field(name: str, values: Array) -> pa.Field:
    """The column of an array, which says its dtype and shape."""
    kind = {"dtype": values.dtype.str, "shape": ",".join(map(str, values.shape))}
    return pa.field(name, pa.large_binary(), metadata=kind)


def _cell(values: Array) -> bytes:
    return (np.packbits(values) if values.dtype == np.bool_ else values).tobytes()


def _array(field: pa.Field, cell: pa.Scalar) -> Array:
    """The inverse of `_field` and `_cell`."""
    dtype = np.dtype(field.metadata[b"dtype"].decode())
    shape = [int(size) for size in field.metadata[b"shape"].split(b",")]
    raw = np.frombuffer(cell.as_buffer(), np.uint8)
    if dtype == np.bool_:
        raw = np.unpackbits(raw, count=math.prod(shape))
    values: Array = raw.view(dtype).reshape(shape)
    return values


def join_rollouts(rollouts: Sequence[Rollout]) -> Rollout:
    """The rollouts of all shards of an update as one, padded to the widest."""
    shards = [rollout.arrays() for rollout in rollouts]

    def joined(name: str) -> Array:
        parts = [shard[name] for shard in shards]
        if name.startswith(_BY_TOKEN):
            width = max(bits.shape[-1] for bits in parts)
            missing = [width - bits.shape[-1] for bits in parts]
            pairs = zip(parts, missing, strict=True)
            parts = [np.pad(bits, ((0, 0), (0, 0), (0, 0), (0, more))) for bits, more in pairs]
        return np.concatenate(parts, axis=0 if name in _EXAMPLES_FIRST else 1)

    oldest = min(rollout.version for rollout in rollouts)
    return Rollout.from_arrays({name: joined(name) for name in shards[0]}, oldest)
