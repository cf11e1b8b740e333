"""Data-parallel learners: their process group, and all-reduces over it.

Every rank holds the same weights, takes its shard of the global batch, and applies the gradient of
the whole batch: losses are sums over the shard divided by counts of the global batch, and gradients
are summed over the ranks.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Protocol, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rss_rl.errors import LearnerError
from rss_rl.types import Array


class Group(Protocol):
    """The learners of a run; `rank` counts from 0 to `size` - 1."""

    rank: int
    size: int

    def sum(self, values: Tensor) -> Tensor:
        """The sum of every rank's `values`, on every rank; all must call it."""

    def share(self, module: nn.Module, apart: Sequence[str] = ()) -> nn.Module:
        """The module with the weights of rank 0, whose backward sums gradients over the ranks.

        All ranks must call its forward and backward, also with an empty shard. Gradients of the
        parameters named in `apart` are not summed here: use `sum_rows`.
        """

    def sum_rows(self, gradient: Tensor) -> Tensor:
        """The sum of every rank's coalesced sparse gradient [V, E], on every rank, coalesced."""

    def guard(self) -> AbstractContextManager[None]:
        """Turns the errors of a lost group into a LearnerError; wrap the whole update in it."""


class Alone:
    """A group of one learner: sums are the values themselves."""

    rank = 0
    size = 1

    def sum(self, values: Tensor) -> Tensor:
        """See `Group`."""
        return values

    def share(self, module: nn.Module, apart: Sequence[str] = ()) -> nn.Module:
        """See `Group`; the module itself."""
        return module

    def sum_rows(self, gradient: Tensor) -> Tensor:
        """See `Group`."""
        return gradient

    def guard(self) -> AbstractContextManager[None]:
        """See `Group`."""
        return nullcontext()


_LOST = re.compile(r"gloo|nccl|connect|socket|store|time[d ]*out", re.IGNORECASE)
_ASIDE = re.compile(r"\[[^\]\s]+:\d+\] | This is typically .*")
"""Removed from messages: line numbers of torch's sources, and advice about other logs."""

ALONE = Alone()
"""The group of a single learner."""


class ProcessGroup:
    """Learners in separate processes, joined by torch.distributed: gloo, or NCCL on CUDA.

    A process can be in one such group at a time. Every wait ends after `timeout_s`: gloo raises a
    LearnerError (at once if the other process died); NCCL aborts the process instead, which its
    parent notices.

    Args:
        rank, size: of this learner, and the number of learners.
        address, port: where rank 0 listens until all ranks have joined.
        device: of the learner's tensors. timeout_s: longest wait for the others.

    Raises:
        LearnerError: not all ranks joined in time.
    """

    def __init__(
        self, rank: int, size: int, *, address: str, port: int, device: torch.device,
        timeout_s: float,
    ) -> None:  # fmt: skip
        self.rank, self.size = rank, size
        self._timeout_s = timeout_s
        cuda = None
        if device.type == "cuda":  # NCCL needs the device's index
            number = torch.cuda.current_device() if device.index is None else device.index
            cuda = torch.device("cuda", number)
        with self._failing(
            f"learner {rank} of {size} found no group at {address}:{port}",
            f"All must start within {timeout_s:.0f} s and reach that port",
        ):
            dist.init_process_group(
                "gloo" if cuda is None else "nccl",
                init_method=f"tcp://{address}:{port}",
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout_s),
                device_id=cuda,
            )

    @contextmanager
    def _failing(self, what: str, remedy: str) -> Iterator[None]:
        """torch.distributed raises plain RuntimeErrors, recognisable only by their message."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            if not _LOST.search(reason):
                raise
            reason = _ASIDE.sub("", reason).strip().rstrip(".")
            raise LearnerError(f"{what}: {reason}", remedy=remedy) from error

    def sum(self, values: Tensor) -> Tensor:
        """See `Group`."""
        total = values.clone()
        dist.all_reduce(total)
        return total

    def sum_rows(self, gradient: Tensor) -> Tensor:
        """See `Group`; the traffic grows with the rows of a batch, not with the table."""
        rows, values = gradient.indices()[0], gradient.values()  # [R], [R, E]
        counts = torch.zeros(self.size, dtype=torch.int64, device=rows.device)
        counts[self.rank] = len(rows)
        dist.all_reduce(counts)
        most = int(counts.max())
        # all_gather needs equal sizes: rows are padded, and the padding is dropped afterwards.
        padded = rows.new_zeros(most), values.new_zeros(most, values.shape[1])
        padded[0][: len(rows)], padded[1][: len(rows)] = rows, values
        gathered = [[torch.empty_like(part) for _ in range(self.size)] for part in padded]
        for parts, part in zip(gathered, padded, strict=True):
            dist.all_gather(parts, part)
        sizes = counts.tolist()
        every = [
            torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
            for parts in gathered
        ]
        total = torch.sparse_coo_tensor(
            every[0][None], every[1], gradient.shape, check_invariants=False
        )
        return total.coalesce()

    def share(self, module: nn.Module, apart: Sequence[str] = ()) -> nn.Module:
        """See `Group`; torch's DistributedDataParallel, with sums in place of its means."""
        # Buffers (the fixed word vectors) never change; torch renamed the argument for that.
        known = inspect.signature(DistributedDataParallel.__init__).parameters
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        with self.guard():
            for parameter in map(module.get_parameter, apart):
                dist.broadcast(parameter.detach(), src=0)
            ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
            ignore(module, [*apart])  # type: ignore[no-untyped-call]
            shared = DistributedDataParallel(module, **{name: False})  # type: ignore[arg-type]
            # DDP refuses a hook with string annotations, hence the lambda.
            shared.register_comm_hook(None, lambda state, bucket: _summed(bucket.buffer()))
        return shared

    def guard(self) -> AbstractContextManager[None]:
        """See `Group`."""
        return self._failing(
            f"learner {self.rank} of {self.size} lost another one",
            "Check the other learners' logs; resume from the last checkpoint",
        )


def _summed(gradients: Tensor) -> torch.futures.Future[Any]:
    """Sums gradients over the ranks, in place; DDP's own reduction divides by their number."""
    future = dist.all_reduce(gradients, async_op=True).get_future()
    return cast(torch.futures.Future[Any], future.then(lambda done: done.value()[0]))


def shard(rows: Array, rank: int, size: int) -> Array:
    """A rank's shard of the rows of a global batch; empty if there are too few.

    >>> [shard(np.arange(5), rank, 3).tolist() for rank in range(3)]
    [[0, 1], [2, 3], [4]]
    """
    return np.array_split(rows, size)[rank]


def sum_and_max(group: Group, values: Tensor) -> Tensor:
    """Sums [n] over the ranks, and, of the last value, which is >= 0, their maximum."""
    if group.size == 1:
        return values
    by_rank = values.new_zeros(group.size)
    by_rank[group.rank] = values[-1]
    total = group.sum(torch.cat([values[:-1], by_rank]))
    return torch.cat([total[: len(values) - 1], total[len(values) - 1 :].amax(0, keepdim=True)])
