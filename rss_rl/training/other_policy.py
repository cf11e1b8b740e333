"""A policy that another run has learnt, with which a run begins: `policy.from_run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.types import Array

_WORDS = "embedding.trainable"
_AVERAGED = "learning/average/written"
"""Where a learner keeps the word vectors that those it publishes are the average of."""


def read_policy(config: RunConfig, prepared: Prepared) -> dict[str, Array] | None:
    """The best policy of `policy.from_run`, and the word vectors it reads; None if it is not set.

    Raises:
        ConfigError: there is no such run, or its policy or its data are others.
    """
    where, folder = "policy.from_run", config.policy.from_run
    if folder is None:
        return None
    path = Path(folder)
    try:
        run = RunDirectory.open(path)
        tensors = load_checkpoint(path, "best").tensors
    except CheckpointError as error:
        raise ConfigError(
            f"its policy cannot be read: {error}",
            where=where,
            remedy="Name the directory of a run that was trained to its end",
        ) from error
    mine, theirs = (
        {key: value for key, value in policy.items() if key not in ("from_run", "pretrained")}
        for policy in (config.policy.model_dump(mode="json"), run.config["policy"])
    )
    if different := [key for key in mine if mine[key] != theirs.get(key)]:
        raise ConfigError(
            f"the policy of {path} has other settings: "
            + "; ".join(f"policy.{key}={theirs.get(key)}" for key in different),
            where=where,
            remedy="Set them alike",
        )
    states = prepared.states_digest()
    same_states = states is None or run.settled.get("data.states") == states
    known = open_prepared(run.inputs)
    if not same_states or not known.manifest.is_of_the_same_data(prepared.manifest):
        what = "the data" if same_states else "the states of words"
        raise ConfigError(
            f"{what} are not those that {path} was trained on",
            where=where,
            remedy=f"Set data={run.config['data']}",
        )
    return {
        name: value
        for name, value in tensors.items()
        if name.startswith("policy/") or name == f"classifier/{_WORDS}"
    }


def with_policy(tensors: Mapping[str, Any], policy: Mapping[str, Array]) -> dict[str, Array]:
    """A learner's tensors with those of `read_policy` in place of its own."""
    words = policy[f"classifier/{_WORDS}"]
    # Copies: some of a local learner's tensors share memory with the parameters that are set first.
    found = {
        name: np.array(value.numpy(force=True) if isinstance(value, torch.Tensor) else value)
        for name, value in tensors.items()
    }
    found |= {n: words for n in found if n.endswith(f"/{_WORDS}") or n == _AVERAGED}
    return found | dict(policy)
