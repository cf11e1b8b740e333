"""Whether a run fits into memory, estimated before anything is allocated, and what to change.

Without it, a run that is far too large is killed by the system without a word. The estimate is a
lower bound, so that no run is refused that might fit: weights with their gradients, and what every
encoder keeps of a batch, or the bits that are drawn for it. Modules are built on torch's meta
device, so that their parameters are counted without being allocated. A GPU has errors of its own.

Legend: E embedding size, D hidden size; cells are the padded tokens of a batch.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError, ResourceError
from rss_rl.reading.models import outline

_FLOAT = 4
_BYTES_PER_BIT = 2 * (8 + 1)
"""Bytes of a cell of a selection: for each role a uniform number and a bit."""
_SMALL = 1 << 28
"""Bytes below which a run is not refused."""
_ALLOCATORS = ("DefaultCPUAllocator", "not enough memory", "Cannot allocate memory")


def check_room(config: RunConfig, prepared: Prepared) -> None:
    """Refuse a learner in this process that takes more than the machine's free memory.

    Raises:
        ConfigError: names the settings, the memory they need at least, and the available memory.
    """
    if config.learner.device != "cpu":
        return
    train, sampler = prepared.manifest.splits["train"], config.sampler
    cells = config.batch_size * sum(train.tokens) / train.rows
    cells = min(cells, config.batch_tokens or cells)
    # Alive at once are 2 E + 4 D numbers a cell in source2token, the smallest of the encoders with
    # weights, and more in others.
    kept = 2 * prepared.manifest.vectors.dim + 4 * config.model.hidden
    drawn = sampler.selections * cells / min(sampler.shards, config.batch_size)
    weights = ("model.hidden, policy.options", 2.0 * _FLOAT * _count_weights(config, prepared))
    batch = max(
        ("batch_size, model.hidden", cells * _FLOAT * kept),
        ("batch_size, sampler.selections", drawn * _BYTES_PER_BIT),
        key=lambda need: need[1],
    )
    wanted = weights[1] + batch[1]
    if wanted < _SMALL or wanted <= (free := available_bytes()):
        return
    raise ConfigError(
        f"the run takes at least {_gigabytes(wanted)} of memory, and {_gigabytes(free)} are"
        f" available on {socket.gethostname()}",
        where=max(weights, batch, key=lambda need: need[1])[0],
        remedy=f"Lower them; train has {train.rows:,} rows, and batch_tokens bounds what a batch of"
        " long texts takes",
    )


def _count_weights(config: RunConfig, prepared: Prepared) -> float:
    """Parameters of classifier and policy; 0 for a component that needs more than their shapes."""
    try:
        models = outline(config, prepared)
    except OverflowError:
        return float("inf")
    return float(sum(parameter.numel() for parameter in models.parameters())) if models else 0.0


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count < float("inf") else "more than 9,000,000,000 GB"


def available_bytes() -> float:
    """Memory that this process can still allocate, given the machine and its container."""
    return min(_meminfo(), _container())


def _meminfo() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        values = {line.split(":")[0]: float(line.split()[1]) * 1024 for line in lines}
        return values["MemAvailable"] + values.get("SwapFree", 0.0)
    except (OSError, KeyError, ValueError, IndexError):
        return float("inf")


def _container() -> float:
    """Memory left by the control group (version 2)."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = ((folder / f"memory.{name}").read_text() for name in ("max", "current"))
        return float("inf") if limit.strip() == "max" else float(limit) - float(used)
    except (OSError, ValueError):
        return float("inf")


@contextmanager
def memory_errors(doing: str, remedy: str) -> Iterator[None]:
    """Turns out-of-memory exceptions into an error with a remedy.

    Raises:
        ResourceError: there was not enough memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        shortage = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not shortage and not any(name in str(error) for name in _ALLOCATORS):
            raise
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise ResourceError(
            f"there is not enough memory {doing} ({reason.strip().rstrip('.')})", remedy=remedy
        ) from error
