"""Rollouts: what a sampler sends to the learner, as one Arrow record batch.

Tokens are not sent: a rollout has row numbers, and the learner reads them from the prepared data.

Legend: K selections an example, B examples of the shard, M = K * B (sample-major), S sentences,
N_s tokens of the shard's longest sentence in slot s.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from rss_rl.envs.rewards import uncharged
from rss_rl.types import ROLES, Array


@dataclass(frozen=True)
class Job:
    """A shard of an update; its result depends only on these fields and the snapshot.

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


_SCORE, _COST = "score/", "cost/"
"""Prefixes of the columns that hold terms of the reward."""


@dataclass(frozen=True)
class Rollout:
    """Scored selections of B examples.

    rows            int64 [B]
    selections      S x bool [K, B, 2, N_s]
    log_prob        float32 [K, B, S], of the behaviour policy
    scores          float32 [K, B] each, terms of the reward model by name; empty if not scored
    costs           float32 [K, B, S] each, of kept tokens, by name; empty if not scored
    thresholded     float32 [B, S], reward of the thresholded selection, `uncharged` under a share
                    asked for; NaN if not requested
    version         of the behaviour policy
    bit_log_prob    S x float32 [K, B, 2, N_s], 0 on padding; empty if not requested
    """

    rows: Array
    selections: tuple[Array, ...]
    log_prob: Array
    scores: Mapping[str, Array]
    costs: Mapping[str, Array]
    thresholded: Array
    version: int
    bit_log_prob: tuple[Array, ...] = ()

    @property
    def samples(self) -> int:
        """K."""
        return len(self.log_prob)

    @property
    def score(self) -> Array:
        """The sum of the scores, float32 [K, B]; NaN if not scored."""
        unscored = np.full(self.log_prob.shape[:2], np.nan, np.float32)
        return reduce(operator.add, self.scores.values()) if self.scores else unscored

    @property
    def cost(self) -> Array:
        """The sum of the costs, float32 [K, B, S]; NaN if not scored."""
        unscored = np.full(self.log_prob.shape, np.nan, np.float32)
        return reduce(operator.add, self.costs.values()) if self.costs else unscored

    @property
    def rewards(self) -> Array:
        """R_s = score - costs of each sentence, float32 [K, B, S]."""
        return self.score[..., None] - self.cost

    def uncharged(self) -> Rollout:
        """Without the sparsity cost, which the learner charges itself under a share asked for."""
        return replace(self, costs=uncharged(self.costs))

    def of(self, indices: Array, widths: Sequence[int]) -> Rollout:
        """The rollout of the examples at `indices`, int64 [b], cut to `widths`, their N_s."""

        def cut(bits: tuple[Array, ...]) -> tuple[Array, ...]:
            pairs = zip(bits, widths, strict=False)  # `bit_log_prob` may be empty
            return tuple(np.ascontiguousarray(b[:, indices, :, :width]) for b, width in pairs)

        return replace(
            self,
            rows=self.rows[indices],
            selections=cut(self.selections),
            log_prob=self.log_prob[:, indices],
            scores={name: values[:, indices] for name, values in self.scores.items()},
            costs={name: values[:, indices] for name, values in self.costs.items()},
            thresholded=self.thresholded[indices],
            bit_log_prob=cut(self.bit_log_prob),
        )

    def to_arrow(self) -> pa.RecordBatch:
        """M rows; selections as packed bits, log-probs of bits as bytes.

        To keep them small, row numbers take 4 bytes if they fit, and columns that were not
        requested (scores, thresholded rewards) are left out.
        """
        samples, examples, _ = self.log_prob.shape
        narrow = self.rows.max(initial=0) <= np.iinfo(np.int32).max
        columns = {
            "row": pa.array(np.tile(self.rows.astype(np.int32 if narrow else np.int64), samples))
        }
        columns |= {
            f"{_SCORE}{name}": pa.array(np.ascontiguousarray(values).reshape(-1))
            for name, values in self.scores.items()
        }
        for slot, selection in enumerate(self.selections):
            packed = np.packbits(selection.reshape(samples * examples, -1), axis=1)
            columns[f"selection_{slot}"] = _binary(packed)
            columns |= self._numbers(slot)
        for slot, bits in enumerate(self.bit_log_prob):
            flat = np.ascontiguousarray(bits, np.float32).reshape(samples * examples, -1)
            columns[f"bit_log_prob_{slot}"] = _binary(flat.view(np.uint8))
        widths = ",".join(str(s.shape[-1]) for s in self.selections)
        shape = {"samples": str(samples), "sentences": str(len(self.selections)), "widths": widths}
        return pa.RecordBatch.from_pydict(columns, metadata=shape | {"version": str(self.version)})

    def _numbers(self, slot: int) -> dict[str, pa.Array]:
        """The columns of a sentence's log-probs, costs and thresholded rewards, where present."""
        present = {"log_prob": self.log_prob[..., slot]}
        present |= {f"{_COST}{name}": values[..., slot] for name, values in self.costs.items()}
        if not np.isnan(self.thresholded[:, slot]).all():
            present["thresholded"] = np.tile(self.thresholded[:, slot], self.samples)
        return {
            f"{name}_{slot}": pa.array(np.ascontiguousarray(values).reshape(-1))
            for name, values in present.items()
        }

    def to_bytes(self) -> bytes:
        """`to_arrow` as an Arrow stream: Ray takes five times as long to send a record batch."""
        batch, sink = self.to_arrow(), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def from_bytes(cls, stream: bytes) -> Rollout:
        """The inverse of `to_bytes`."""
        with pa.ipc.open_stream(stream) as reader:
            return cls.from_arrow(reader.read_next_batch())

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch) -> Rollout:
        """The inverse of `to_arrow`."""
        metadata = {key.decode(): value.decode() for key, value in batch.schema.metadata.items()}
        samples, sentences = int(metadata["samples"]), int(metadata["sentences"])
        widths = [int(width) for width in metadata["widths"].split(",")]
        examples = batch.num_rows // samples

        def column(name: str) -> Array:
            if name not in batch.schema.names:  # not requested
                return np.full((samples, examples), np.nan, np.float32)
            return batch.column(name).to_numpy(zero_copy_only=True).reshape(samples, examples)  # type: ignore[no-any-return]

        def by_sentence(name: str) -> Array:
            return np.stack([column(f"{name}_{slot}") for slot in range(sentences)], -1)

        def named(prefix: str, suffix: str) -> list[str]:
            """The names of columns with this prefix and suffix, without them, in order."""
            return [
                name.removeprefix(prefix).removesuffix(suffix)
                for name in batch.schema.names
                if name.startswith(prefix) and name.endswith(suffix)
            ]

        selections = tuple(
            np.unpackbits(_bytes(batch.column(f"selection_{slot}")), axis=1, count=ROLES * width)
            .astype(bool)
            .reshape(samples, examples, ROLES, width)
            for slot, width in enumerate(widths)
        )
        return cls(
            rows=column("row")[0].astype(np.int64),
            selections=selections,
            log_prob=by_sentence("log_prob"),
            scores={name: column(f"{_SCORE}{name}") for name in named(_SCORE, "")},
            costs={name: by_sentence(f"{_COST}{name}") for name in named(_COST, "_0")},
            thresholded=by_sentence("thresholded")[0],
            version=int(metadata["version"]),
            bit_log_prob=tuple(
                _bytes(batch.column(f"bit_log_prob_{slot}"))
                .view(np.float32)
                .reshape(samples, examples, ROLES, width)
                for slot, width in enumerate(widths)
                if f"bit_log_prob_{slot}" in batch.schema.names
            ),
        )


def _binary(rows: Array) -> pa.Array:
    """uint8 [M, bytes] as a column."""
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)]
    )


def _bytes(column: pa.Array) -> Array:
    """The inverse of `_binary`."""
    size = column.type.byte_width
    flat = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * size :]
    return flat[: len(column) * size].reshape(len(column), size)


def join_rollouts(rollouts: Sequence[Rollout]) -> Rollout:
    """The rollouts of all shards of an update as one, padded to the widest."""
    sentences = len(rollouts[0].selections)
    widths = [max(r.selections[slot].shape[-1] for r in rollouts) for slot in range(sentences)]

    def padded(bits: Array, width: int) -> Array:
        missing = width - bits.shape[-1]
        return np.pad(bits, ((0, 0), (0, 0), (0, 0), (0, missing)))

    def joined(columns: Sequence[Sequence[Array]]) -> tuple[Array, ...]:
        """The shards' arrays concatenated, one for each slot."""
        slots = zip(*columns, strict=True)
        return tuple(
            np.concatenate([padded(bits, width) for bits in parts], axis=1)
            for parts, width in zip(slots, widths, strict=False)
        )

    def terms(shards: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The shards' arrays concatenated by name; all shards have the same names."""
        return {
            name: np.concatenate([shard[name] for shard in shards], axis=1) for name in shards[0]
        }

    return Rollout(
        rows=np.concatenate([r.rows for r in rollouts]),
        selections=joined([r.selections for r in rollouts]),
        log_prob=np.concatenate([r.log_prob for r in rollouts], axis=1),
        scores=terms([r.scores for r in rollouts]),
        costs=terms([r.costs for r in rollouts]),
        thresholded=np.concatenate([r.thresholded for r in rollouts]),
        version=min(r.version for r in rollouts),
        bit_log_prob=joined([r.bit_log_prob for r in rollouts]),
    )
