"""Sentence pairs a second of a classifier's training step, and the share of the machine's bound.

Legend: B pairs of a batch, N tokens of its longest sentence, D hidden, E embedding size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from rss_rl.config import ModelConfig, OptimizerConfig
from rss_rl.data.batch_order import BatchOrder
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.learners.updates import read
from rss_rl.models.build import build_classifier
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.packing import Pairs
from rss_rl.reading.device import keep_freed_memory
from rss_rl.types import Array, LabelSpec
from suite.records import Record, compared, limited
from suite.reference import PlainReSAN
from suite.timing import Settings, in_turns, seconds_of
from suite.workers import Worker

HIDDEN = 300
_BATCH, _BATCHES = 64, 4
_CLASSES = LabelSpec("classes", ("no", "maybe", "yes"))
_DROPOUT, _CLIP = 0.25, 5.0
_ADAM = OptimizerConfig(learning_rate=1e-3, clip_norm=_CLIP)
TUNED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
"""glibc keeps freed memory, and does not give large tensors back at each free."""


@dataclass(frozen=True)
class Size:
    """A dataset of random pairs that are as long as a published one's.

    words            of the vocabulary
    means, deviations  of the two sentences' tokens; lengths are log-normal
    longest          tokens
    """

    words: int
    means: tuple[float, float]
    deviations: tuple[float, float]
    longest: int
    rows: int = 4096

    def lengths(self) -> Array:
        """int64 [rows, 2]."""
        drawn = np.random.default_rng(0).normal(size=(self.rows, 2))
        means, deviations = np.array(self.means), np.array(self.deviations)
        spread = np.log1p((deviations / means) ** 2)
        lengths = np.exp(np.log(means) - spread / 2 + np.sqrt(spread) * drawn)
        return np.clip(np.rint(lengths), 3, self.longest).astype(np.int64)


SIZES = {
    "SICK": Size(2_300, (9.6, 9.6), (3.4, 3.4), 32),
    "SNLI": Size(36_000, (14.0, 8.3), (6.0, 3.2), 78),
}


class _Lengths:
    """What the order of batches asks of a split."""

    def __init__(self, lengths: Array) -> None:
        self.shard_rows, self._lengths = (len(lengths),), lengths

    def lengths(self, rows: Array) -> Array:
        return self._lengths[rows]  # type: ignore[no-any-return]


def bucketed(size: Size, pairs: int = _BATCH) -> tuple[Array, list[Array]]:
    """Lengths, and the rows of each batch of an epoch in the learner's own order."""
    lengths = size.lengths()
    order = BatchOrder(_Lengths(lengths), pairs, seed=0)
    return lengths, [order.rows(number) for number in range(order.batches_per_epoch)]


def words_of(size: Size, shape: tuple[int, ...], draw: np.random.Generator) -> Array:
    """As frequent as in a text: the rank of a word, int64, is about exp(uniform)."""
    return np.exp(draw.random(shape) * math.log(size.words - 1)).astype(np.int64)


def batches_of(size: Size, count: int = _BATCHES, pairs: int = _BATCH) -> list[TensorBatch]:
    """`count` batches, evenly over those of an epoch by how many cells they have."""
    lengths, epoch = bucketed(size, pairs)
    epoch.sort(key=lambda rows: int(lengths[rows].max(0).sum()))
    draw, batches = np.random.default_rng(1), []
    for number in range(count):
        rows = epoch[(2 * number + 1) * len(epoch) // (2 * count)]
        tokens, valid = [], []
        for slot in range(2):
            longest = int(lengths[rows, slot].max())
            real = np.arange(longest) < lengths[rows, slot, None]
            tokens.append(torch.from_numpy(np.where(real, words_of(size, real.shape, draw), 0)))
            valid.append(torch.from_numpy(real))
        labels = torch.from_numpy(draw.integers(0, 3, len(rows)))
        batches.append(TensorBatch(tokens, valid, labels))
    return batches


def _turn(
    step: Callable[[TensorBatch], object], size: Size, threads: int, clock: str
) -> Callable[[], float]:
    torch.set_num_threads(threads)
    batches = batches_of(size)
    pairs = sum(len(batch.labels) for batch in batches)

    def turn() -> float:
        return pairs / seconds_of(lambda: [step(batch) for batch in batches], clock)

    return turn


def ours(size: str, precision: str, threads: int, clock: str) -> Callable[[], float]:
    """Turns of our training step, pairs a second, in a process such as a learner's."""
    keep_freed_memory()
    sizes = SIZES[size]
    torch.manual_seed(0)
    vectors = np.random.default_rng(0).normal(size=(sizes.words, HIDDEN)).astype(np.float32)
    resan = {"name": "resan", "options": {"keep_unselected": True}}
    config = ModelConfig(encoder=resan, hidden=HIDDEN, dropout=_DROPOUT)
    model = build_classifier(config, _CLASSES, 2, vectors, sizes.words)
    autocast = torch.bfloat16 if precision == "bfloat16" else None
    learner = SupervisedLearner(model, _ADAM, autocast)
    keys = torch.arange(_BATCH)

    def step(batch: TensorBatch) -> None:
        given = keys[: len(batch.labels)]
        read([learner.gradients(batch, None, number=0, dropout_keys=given)])
        learner.apply(0)

    return _turn(step, sizes, threads, clock)


def plain(size: str, threads: int, clock: str) -> Callable[[], float]:
    """Turns of the plain eager step, pairs a second."""
    sizes = SIZES[size]
    torch.manual_seed(0)
    model = PlainReSAN(sizes.words, HIDDEN, HIDDEN, 3, _DROPOUT).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=_ADAM.learning_rate)

    def step(batch: TensorBatch) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(batch.tokens, batch.valid), batch.labels).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimizer.step()

    return _turn(step, sizes, threads, clock)


def padding_share(lengths: Array, batches: Sequence[Array]) -> float:
    """Share of cells without a real token, of lengths int64 [n, S] and rows of batches."""
    cells = sum(int(lengths[rows].max(axis=0).sum()) * len(rows) for rows in batches)
    real = sum(int(lengths[rows].sum()) for rows in batches)
    return 1.0 - real / cells


def training_step(settings: Settings) -> Iterator[Record]:
    """Ours in float32 and bfloat16 beside the plain step, untuned and with the allocator tuned."""
    common = {"threads": settings.threads, "clock": settings.clock}
    for name, size in SIZES.items():
        lengths, epoch = bucketed(size)
        yield limited(
            f"step/{name}/padding, limit 12%", [padding_share(lengths, epoch)], 0.12, "of cells"
        )
        with ExitStack() as stack:
            turns = {
                key: stack.enter_context(
                    Worker(
                        f"suite.training_step:{kind}",
                        {"size": name} | common | more,
                        environment=variables,
                    )
                )
                for key, kind, more, variables in (
                    ("float32", "ours", {"precision": "float32"}, {}),
                    ("bfloat16", "ours", {"precision": "bfloat16"}, {}),
                    ("plain eager", "plain", {}, {}),
                    ("plain eager, allocator tuned", "plain", {}, TUNED),
                )
            }
            found = in_turns(turns, settings.repeats)
        for precision in ("float32", "bfloat16"):
            for other in ("plain eager", "plain eager, allocator tuned"):
                yield compared(
                    f"step/{name}/{precision} against {other}",
                    found[precision],
                    found[other],
                    "pairs/s",
                )
            pairs = sum(len(batch.labels) for batch in batches_of(size))
            bound = pairs / bound_s(batches_of(size), precision, settings)
            yield limited(
                f"step/{name}/{precision} against its bound", found[precision], bound, "pairs/s"
            )


def bound_s(batches: Sequence[TensorBatch], precision: str, settings: Settings) -> float:
    """Least seconds of a step on each of `batches`: products and pairs at their measured rates.

    Products: 5 of D x D each token and direction (the first E x D), 2 of 2D x 2D of the pooling;
    forward, and twice that backward. Pairs: a quotient and an exp2 each, feature and direction, of
    those that the position mask allows, forward and again backward.
    """
    torch.set_num_threads(settings.threads)
    tokens = sum(int(valid.sum()) for batch in batches for valid in batch.valid)
    pairs = sum(
        float((valid.sum(1).double() * (valid.sum(1) - 1) / 2).sum())
        for batch in batches
        for valid in batch.valid
    )
    flops = 3 * 2 * tokens * (2 * 5 + 2 * 4) * HIDDEN * HIDDEN
    elements = 2 * 2 * pairs * HIDDEN
    return flops / product_rate(precision, settings) + elements / pair_rate(settings)


def product_rate(precision: str, settings: Settings) -> float:
    """Floating-point operations a second of matrix products of this model's size, at their best."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    left, right = (
        torch.randn(1024, 2 * HIDDEN, dtype=dtype),
        torch.randn(2 * HIDDEN, 2 * HIDDEN, dtype=dtype),
    )
    out = torch.empty(1024, 2 * HIDDEN, dtype=dtype)
    best = min(
        seconds_of(lambda: torch.mm(left, right, out=out), settings.clock, least_s=0.05)
        for _ in range(settings.repeats)
    )
    return 2 * left.numel() * right.shape[1] / best


def pair_rate(settings: Settings) -> float:
    """Pair features a second: one quotient and one exp2 each, in the cache; by torch or by us."""
    values = torch.rand(1 << 14)
    tokens = torch.rand(8, 512, 64)  # a piece of work for each of eight threads
    everything = kept_indices(torch.ones(8, 512, dtype=torch.bool))
    pairs = Pairs(everything, everything, "before")
    ways: list[tuple[Callable[[], object], float]] = [
        (lambda: values.reciprocal_().exp2_(), values.numel()),
        (
            lambda: feature_wise_attention(tokens, tokens, tokens, pairs, 5.0, "compiled"),
            8 * 512 * 511 / 2 * 64,
        ),
    ]
    return max(
        elements / seconds_of(way, settings.clock, least_s=0.05)
        for way, elements in ways
        for _ in range(settings.repeats)
    )
