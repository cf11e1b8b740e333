"""A co-training update of ReSAN at fixed shapes, which a CUDA graph or `torch.compile` can hold.

Batches are padded to the widths and rows of a bucket, and rows that are no examples weigh nothing:
the gradients are those of the learner's packed update, and no number of a tensor reaches the host.

Legend: K selections an example, B rows of a bucket, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

__all__ = ["Feed", "FixedBatch", "FixedUpdate", "as_graph", "bucket"]

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from suite.reference import PlainReSAN
from torch import Tensor

from rss_rl.learners.updates import RewardBatch
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops.advantages import leave_one_out
from rss_rl.policies.policy import Policy, PolicyInputs


class FixedBatch(NamedTuple):
    """A batch in a bucket.

    tokens, valid  S x int64 and bool [B, N_s]
    selections     S x bool [K, B, 2, N_s]
    rewards        [K, B, S]
    labels         int64 [B]
    weights        [B], one over the number of examples; 0: a row that is none
    """

    tokens: list[Tensor]
    valid: list[Tensor]
    selections: list[Tensor]
    rewards: Tensor
    labels: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> FixedBatch:
        """A copy on the device."""
        copies: Any = ([t.to(device, copy=True) for t in part] for part in self[:3])
        return FixedBatch(*copies, *(t.to(device, copy=True) for t in self[3:]))

    def flat(self) -> list[Tensor]:
        """Every tensor."""
        return [*self.tokens, *self.valid, *self.selections, *self[3:]]


def bucket(batch: TensorBatch, paid: RewardBatch, rows: int, widths: Sequence[int]) -> FixedBatch:
    """A batch and its rollout, padded to B rows and to the widths N_s."""
    missing, examples = rows - len(batch.labels), len(batch.labels)

    def wide(parts: Sequence[Tensor], *, end: tuple[int, ...]) -> list[Tensor]:
        pairs = zip(parts, widths, strict=True)
        return [F.pad(t, (0, width - t.shape[-1], *end, 0, missing)) for t, width in pairs]

    return FixedBatch(
        wide(batch.tokens, end=()),
        wide(batch.valid, end=()),
        wide(paid.selections, end=(0, 0)),
        F.pad(paid.rewards, (0, 0, 0, missing)),
        F.pad(batch.labels, (0, missing)),
        F.pad(paid.rewards.new_full((examples,), 1 / examples), (0, missing)),
    )


class FixedUpdate:
    """The update of classifier and policy on one batch in place.

    Args:
        batch: whose tensors every update reads. compiled: backend of `torch.compile`, None: eager.
    """

    def __init__(
        self,
        classifier: PlainReSAN,
        policy: Policy,
        batch: FixedBatch,
        entropy_cost: float = 0.0,
        compiled: str | None = None,
    ) -> None:
        self._classifier, self._policy, self.batch = classifier, policy, batch
        self._entropy_cost = entropy_cost
        self._loss = self.loss
        if compiled:
            self._loss = torch.compile(self.loss, backend=compiled, dynamic=False)
        cuda = batch.labels.is_cuda
        parameters = [*classifier.parameters(), *policy.parameters()]
        self._optimizer = torch.optim.Adam(parameters, fused=True, capturable=cuda)

    def loss(self) -> Tensor:
        """The sum of both objectives, which share no parameter."""
        tokens, valid, selections, rewards, labels, weights = self.batch
        logits = self._classifier(tokens, valid, [bits[0] for bits in selections])
        total = F.cross_entropy(logits, labels, reduction="none") @ weights
        advantage = leave_one_out(rewards)  # [K, B, S]
        table = self._classifier.embedding.trainable.detach()
        for slot, bits in enumerate(selections):
            words, real = tokens[slot], valid[slot]
            inputs = PolicyInputs(F.embedding(words, table), real, words, torch.zeros_like(real))
            found = self._policy(inputs).evaluate(bits)
            log_prob = found.log_prob.sum((-1, -2))  # [K, B]
            total = total - ((advantage[..., slot] * log_prob).mean(0) @ weights)
            total = total - self._entropy_cost / len(tokens) * (found.entropy @ weights)
        return total

    def step(self) -> None:
        """One update."""
        self._optimizer.zero_grad()
        self._loss().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def as_graph(step: Callable[[], None]) -> tuple[Callable[[], None], str]:
    """A step as a CUDA graph, and ""; where it cannot be captured, itself, and why in one line."""
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # what is made once must not be part of the graph
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    except (AssertionError, RuntimeError) as error:
        return step, f"no CUDA graph: {str(error).partition(chr(10))[0]}"
    return graph.replay, ""


class Feed:
    """Moves the next batch into place; the one after it leaves pinned memory meanwhile.

    Args:
        place: of the batch that updates read. batches: of the same shapes, in turn, on the CPU.
    """

    def __init__(self, place: FixedBatch, batches: Sequence[FixedBatch]) -> None:
        self._place, self._staged = place.flat(), [torch.empty_like(t) for t in place.flat()]
        cuda = place.labels.is_cuda
        self._stream = torch.cuda.Stream() if cuda else None
        sources = [[t.pin_memory() if cuda else t for t in batch.flat()] for batch in batches]
        self._sources = itertools.cycle(sources)
        self._stage()

    def _stage(self) -> None:
        if self._stream is not None:  # until what was staged before has been moved into place
            self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for staged, source in zip(self._staged, next(self._sources), strict=True):
                staged.copy_(source, non_blocking=True)

    def __call__(self) -> None:
        """Queue it before the update that reads the batch."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        for place, staged in zip(self._place, self._staged, strict=True):
            place.copy_(staged)
        self._stage()
