"""Whether a run fits into memory, estimated before anything is allocated, and what to change.

The estimate is a lower bound, so that no run is refused that might fit: weights with gradients and
optimiser state, and the activations of a batch that every encoder has. The configured batch size is
counted, even if the data have fewer rows. Modules are built on torch's meta device, so that all
their parameters are counted without allocating them. Remote learners, and those on a GPU, are
checked where they run.

Legend: E embedding size, D hidden size; cells are the padded tokens of a batch.
"""

from __future__ import annotations

import os
import resource
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.data.manifest import SplitInfo
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError, ResourceError, RssError
from rss_rl.rollouts.snapshot import build_models, training_lengths

_FLOAT = 4
_MOMENTS = {"adam": 2, "adadelta": 2, "sgd": 0}
_TRAINED, _EVALUATED = (2, 4), (1, 1)
"""Numbers alive at once for each cell, in multiples of E and of D; source2token, the smallest of
the encoders with weights, takes 10 if E = D, others 12 to 50."""
_BYTES_PER_STATE = 2 + 2 * 4.0
"""Bytes for each number of a state: as stored, as read, and concatenated to the word vector."""
_BYTES_PER_BIT = 2 * (8 + 1)
"""Bytes of a cell of a selection: for each role a uniform number and a bit."""
_SMALL = 1 << 28
"""Bytes below which a run is not checked."""
_ALLOCATORS = ("DefaultCPUAllocator", "not enough memory", "Cannot allocate memory")


class Need(NamedTuple):
    """A lower bound of the bytes that a run needs, and the settings that determine most of them."""

    bytes: float
    settings: str


def run_needs(config: RunConfig, prepared: Prepared) -> list[Need]:
    """A learner's needs: its weights, its part of an update and of a rollout, an evaluation.

    Raises:
        RssError: a component refuses its settings.
    """
    manifest = prepared.manifest
    needs = [_weights(config, prepared)]
    size = manifest.vectors.dim, config.model.hidden
    batch = _cells(manifest.splits["train"], config.batch_size, config.batch_tokens)
    cells = batch / max(1, config.learner.actors)
    needs.append(Need(cells * _FLOAT * _sum(_TRAINED, size), "batch_size, model.hidden"))
    if config.policy.pretrained is not None and (states := prepared.states()) is not None:
        needs.append(Need(cells * _BYTES_PER_STATE * states.size, "batch_size"))
    sampler = config.sampler
    drawn = sampler.selections * batch / min(sampler.shards, config.batch_size) * _BYTES_PER_BIT
    needs.append(Need(drawn, "batch_size, sampler.selections"))
    if "dev" in manifest.splits:
        rows = config.evaluation.batch_size
        read = _cells(manifest.splits["dev"], rows, config.batch_tokens)
        bits = read * config.evaluation.selections * _BYTES_PER_BIT
        settings = "evaluation.batch_size, evaluation.selections"
        needs.append(Need(read * _FLOAT * _sum(_EVALUATED, size) + bits, settings))
    return needs


def _sum(numbers: tuple[int, int], size: tuple[int, int]) -> float:
    return float(sum(a * b for a, b in zip(numbers, size, strict=True)))


def _cells(split: SplitInfo, batch_size: int, batch_tokens: int | None) -> float:
    """The cells of a batch of rows of average length."""
    cells = batch_size * sum(split.tokens) / split.rows
    return cells if batch_tokens is None else min(cells, batch_tokens)


def _weights(config: RunConfig, prepared: Prepared) -> Need:
    """Weights, gradients, optimiser state, weight average, and a local sampler's copy."""
    manifest = prepared.manifest
    trainable = prepared.vocabulary.trainable
    vectors = np.broadcast_to(np.float32(0), (trainable, manifest.vectors.dim))
    lengths = training_lengths(manifest, config.batch_size)
    words = prepared.vocabulary.words
    eager = config.model_copy(
        update={"model": config.model.model_copy(update={"attention": "eager"})}
    )
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that nothing is initialised
            models = build_models(
                eager, manifest.labels, manifest.sentences, vectors, trainable, words, lengths
            )
    except RssError:
        raise
    except Exception as error:
        huge = "overflow" in str(error) or "too large" in str(error).lower()
        if huge and isinstance(error, RuntimeError):
            return Need(float("inf"), "model.hidden, policy.options")
        return Need(0.0, "")  # a component that cannot be built on the meta device
    learner = config.learner
    parts = ((models.classifier, learner.supervised), (models.policy, learner.policy))
    # A sampler in this process has its own copy of the weights.
    beside = config.sampler.backend == "local"
    total = 0.0
    for module, optimiser in parts:
        count = float(sum(p.numel() for p in module.parameters()))
        copies = 2 + _MOMENTS[optimiser.name] + beside
        averaged = module is models.classifier and learner.weight_average is not None
        total += count * _FLOAT * (copies + averaged)
    return Need(total, "model.hidden, policy.options")


def check_room(config: RunConfig, prepared: Prepared, *, sharing: int = 1) -> None:
    """Refuse a learner that does not fit into the memory of this machine, or of its GPU.

    Args:
        sharing: learners on this machine; each has its own GPU.

    Raises:
        ConfigError: names the settings, the memory they need at least, and the available memory.
    """
    needs = run_needs(config, prepared)
    most = max(needs)
    device = torch.device(config.learner.device)
    learners = 1 if device.type == "cuda" else sharing
    wanted = learners * (needs[0].bytes + max(need.bytes for need in needs[1:]))
    if wanted < _SMALL or wanted <= (free := _free_on(device)):
        return
    rows = prepared.manifest.splits["train"].rows
    raise ConfigError(
        f"{_who(config, learners)} at least {_gigabytes(wanted)} of memory, and {_gigabytes(free)}"
        f" are available on {_where(device)}",
        where=most.settings,
        remedy=f"Lower them; train has {rows:,} rows, and batch_tokens bounds what a batch of long"
        " texts takes",
    )


def _who(config: RunConfig, learners: int) -> str:
    if learners > 1:
        return f"the {learners} learners on a machine take"
    return "a learner takes" if config.learner.actors else "the run takes"


def _where(device: torch.device) -> str:
    return f"{device}" if device.type == "cuda" else socket.gethostname()


def _free_on(device: torch.device) -> float:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return float(free)
    return available_bytes() if device.type == "cpu" else float("inf")


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count < float("inf") else "more than 9,000,000,000 GB"


def available_bytes() -> float:
    """Memory that this process can still allocate, given the machine, its container and ulimit."""
    return min(_meminfo(), _container(), _own_limit())


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


def _own_limit() -> float:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        pages = 0
    return float(limit - pages * os.sysconf("SC_PAGE_SIZE"))


@contextmanager
def memory_errors(doing: str, remedy: str) -> Iterator[None]:
    """Turns out-of-memory exceptions into an error with a remedy.

    Raises:
        ResourceError: there was not enough memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_shortage(error):
            raise
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise ResourceError(
            f"there is not enough memory {doing} ({reason.strip().rstrip('.')})", remedy=remedy
        ) from error


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(name in str(error) for name in _ALLOCATORS)
