"""Choice of the backend of feature-wise attention: made once, when a run begins.

A model outside of a run, such as one loaded for prediction, chooses when it is built.
"""

from __future__ import annotations

import logging
from typing import Literal

import torch

from rss_rl.config import ModelConfig
from rss_rl.errors import ConfigError
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.native import missing_compiler, missing_triton

AttentionName = Literal["auto", "eager", "compiled"]

_log = logging.getLogger("rss_rl.attention")


def settled_attention(config: ModelConfig) -> AttentionName:
    """The backend of all processes of a run whose configuration says `auto`.

    If each chose its own, samplers on machines without a compiler would differ from the learner in
    the last bits. For an encoder without kernels the setting stays.
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

    A model keeps one backend. Eager until the kernels are compiled would start sooner, but the two
    differ in the last bits: results would depend on compile times, and no longer be bit-identical
    for any number of samplers and for resumed runs.

    Raises:
        ConfigError: compiled is requested, and this machine cannot compile for its CPU or its CUDA
            devices.
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
    return "compiled" if missing is None else "eager"


def outer_backend(config: ModelConfig) -> KernelBackend:
    """Backend of a model's head, its policy and the optimiser: the model's own, else eager."""
    return attention_backend(config.attention) if config.encoder.can("kernels") else "eager"


def missing_for_kernels() -> str | None:
    """What this machine lacks to compile for its CPU and its CUDA devices; None if nothing."""
    return missing_compiler() or (missing_triton() if torch.cuda.is_available() else None)


def loadable_attention(config: ModelConfig) -> ModelConfig:
    """For using a trained model: eager in place of `compiled` if this machine cannot compile.

    The two differ only by rounding. To resume a run, however, its backend is needed: see
    `attention_backend`.
    """
    if config.attention != "compiled" or not config.encoder.can("kernels"):
        return config
    if missing_for_kernels() is None:
        return config
    return config.model_copy(update={"attention": "eager"})
