"""Which backend computes feature-wise attention: decided once, when a run begins.

A model that belongs to no run, such as one that is loaded to predict, decides when it is built.
"""

from __future__ import annotations

import functools
import logging
from typing import Literal

import torch

from rss_rl.config import ModelConfig
from rss_rl.errors import ConfigError
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.compilers import missing_compiler, missing_triton

AttentionName = Literal["auto", "eager", "compiled"]

_log = logging.getLogger("rss_rl.attention")


def settled_attention(config: ModelConfig) -> AttentionName:
    """What all processes of a run use where the configuration says `auto`.

    Left to each of them, samplers on machines without a compiler would differ from the learner in
    their last bits. An encoder without kernels keeps the name that it has.
    """
    if config.attention != "auto" or not config.encoder.can("kernels"):
        return config.attention
    backend = attention_backend("auto")
    missing = missing_for_kernels()
    if missing is not None and config.encoder.can("feature_attention"):
        _log.warning("feature-wise attention runs eager, several times slower: %s", missing)
    return backend


def attention_backend(name: AttentionName) -> KernelBackend:
    """The backend of a configuration's `model.attention`.

    A model keeps one backend. Eager until the kernels are compiled, and compiled
    from then on, would start sooner, but the two differ in their last bits: then a run would depend
    on how long its processes took to compile, and neither any number of samplers nor a resumed run
    would give the bits of an uninterrupted one.

    Raises:
        ConfigError: compiled is asked for, and this machine cannot compile for its CPU or for the
            CUDA devices that it has.
    """
    if name == "eager":
        return "eager"
    missing = missing_for_kernels()
    if name == "compiled":
        if missing is not None:
            raise ConfigError(
                f"attention cannot be compiled here: {missing}",
                where="model.attention",
                remedy="Install it, or set model.attention=eager for a new run; one that began with"
                " compiled attention resumes only where it can be compiled",
            )
        return "compiled"
    backend: KernelBackend = "compiled" if missing is None else "eager"
    _report(backend, missing)
    return backend


def outer_backend(config: ModelConfig) -> KernelBackend:
    """Of a model's head, its policy and the optimiser: the model's own, eager where it has none."""
    return attention_backend(config.attention) if config.encoder.can("kernels") else "eager"


def missing_for_kernels() -> str | None:
    """What this machine lacks to compile for its CPU and its CUDA devices; None if nothing."""
    return missing_compiler() or (missing_triton() if torch.cuda.is_available() else None)


def loadable_attention(config: ModelConfig) -> ModelConfig:
    """For a trained model that is used: eager in place of `compiled` where nothing can compile.

    The two differ by rounding alone, so that a model goes where no compiler is. Resuming a run
    is another matter: see `attention_backend`.
    """
    if config.attention != "compiled" or not config.encoder.can("kernels"):
        return config
    missing = missing_for_kernels()
    if missing is None:
        return config
    _report("eager", missing)
    return config.model_copy(update={"attention": "eager"})


@functools.cache
def _report(backend: KernelBackend, missing: str | None) -> None:
    """Once for each process."""
    because = "" if missing is None else f", several times slower: {missing}"
    _log.info("feature-wise attention runs %s%s", backend, because)
