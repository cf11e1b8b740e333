"""Warm start: a run begins with the policy that another run has learnt, `policy.from_run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rss_rl.components import Trust
from rss_rl.config import RunConfig, flat_settings
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.runs.run_directory import STATES, RunDirectory
from rss_rl.types import Array

_KEY = "policy.from_run"
_VECTORS = "embedding.trainable"
_AVERAGED = "learning/average/written"
"""Where a learner keeps the word vectors that those it publishes are the average of."""


def with_policy(tensors: Mapping[str, Any], policy: Mapping[str, Array]) -> dict[str, Array]:
    """A new learner's tensors, with those of `read_initial_policy` in place of its own."""
    # Copies: averages may share memory with the word vectors, which are set first.
    tensors = {
        name: np.array(value.numpy(force=True) if isinstance(value, torch.Tensor) else value)
        for name, value in tensors.items()
    }
    vectors = policy.get(f"classifier/{_VECTORS}")
    if vectors is not None:
        tensors |= {n: vectors for n in tensors if n.endswith(f"/{_VECTORS}") or n == _AVERAGED}
    return tensors | dict(policy)


def read_initial_policy(config: RunConfig, prepared: Prepared) -> dict[str, Array] | None:
    """The best policy of another run, that a run begins with; None if it is a new one.

    Returns:
        Tensors of a checkpoint: those of the policy, and the word vectors that it reads.

    Raises:
        ConfigError: there is no such run, or its policy or its data differ.
    """
    if config.policy.from_run is None:
        return None
    path = Path(config.policy.from_run)

    def refused(what: str, remedy: str) -> ConfigError:
        return ConfigError(what, where=f"{_KEY}={path}", remedy=remedy)

    try:
        run = RunDirectory.open(path)
        theirs = run.parsed_config(Trust.of(config.model_dump(mode="json")))
        checkpoint = load_checkpoint(path, "best")
    except CheckpointError as error:
        remedy = "Name the directory of a run that was trained to its end"
        raise refused(f"has no trained policy: {error.what}", remedy) from error
    mine, other = _read_by(config), _read_by(theirs)
    keys = [f"{key}={other.get(key)}" for key in mine | other if mine.get(key) != other.get(key)]
    if keys:
        raise refused(f"its policy has other settings: {', '.join(keys)}", "Use the same settings")
    if open_prepared(run.inputs).manifest != prepared.manifest:
        what = f"was trained on other data than {prepared.location}"
        raise refused(what, f"Set data={theirs.data}")
    digest = prepared.states_digest()
    if digest is not None and run.settled.get(STATES) != digest:
        what = f"read other states of tokens than those in {prepared.location}"
        raise refused(what, f"Encode the data with {theirs.policy.pretrained}")
    return {
        name: value
        for name, value in checkpoint.tensors.items()
        if name.startswith("policy/") or name == f"classifier/{_VECTORS}"
    }


def _read_by(config: RunConfig) -> dict[str, Any]:
    """All settings that a policy's selections depend on, by dotted key."""
    policy = config.policy.model_dump(mode="json", exclude={"from_run", "pretrained"})
    return dict(flat_settings({"policy": policy, "model.activation": config.model.activation}))
