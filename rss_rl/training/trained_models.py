"""Models with the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig, parse_config
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import CheckpointError
from rss_rl.models.attention_choice import loadable_attention
from rss_rl.rollouts.snapshot import Models, build_prepared_models
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.runs.run_directory import CONFIG_FILE, RunDirectory
from rss_rl.training.memory_needs import memory_errors
from rss_rl.types import Array


def select_prefix(
    tensors: Mapping[str, Array], prefix: str, device: torch.device
) -> dict[str, torch.Tensor]:
    """The tensors whose name begins with `prefix`, without it, as torch tensors."""
    return {
        name.removeprefix(prefix): torch.from_numpy(np.array(value)).to(device)
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def load_weights(models: Models, tensors: Mapping[str, Array], device: torch.device) -> None:
    """Load `classifier/...` and `policy/...` into the modules.

    Raises:
        CheckpointError: a name, shape or dtype does not fit, as with another configuration; or a
            weight is NaN or infinite.
    """
    for name, module in models.modules.items():
        found = select_prefix(tensors, f"{name}/", device)
        try:
            for key, own in module.state_dict().items():
                if key in found and found[key].dtype != own.dtype:  # would be converted silently
                    raise RuntimeError(f"{key} is {found[key].dtype}, not {own.dtype}")
            weights = dict(module.named_parameters())
            for key, value in found.items():
                if key in weights and not bool(torch.isfinite(value).all()):
                    raise RuntimeError(f"{key} has NaN or infinite weights")
            module.load_state_dict(found)
        except RuntimeError as error:
            raise CheckpointError(
                f"the {name}'s weights do not fit: {str(error).splitlines()[-1].strip()}",
                remedy="Use the configuration and data the run was started with, and unchanged"
                " files",
            ) from error


@memory_errors("for the model", "Use a machine with more, or end other programs")
def open_models(
    path: Path | str, which: str | int = "best", trust: Trust = NOTHING
) -> tuple[RunConfig, Models, Prepared]:
    """A run's configuration, its models with the weights of a checkpoint, and its inputs.

    The third is the prepared dataset without its splits: vocabulary, vectors, tokenizer.

    Args:
        trust: in components that the run names as package.module:OBJECT.

    Raises:
        RssError: no run, no such checkpoint, or files that do not fit each other.
    """
    path = Path(path)
    run = RunDirectory.open(path)
    config = parse_config(run.config, where=str(path / CONFIG_FILE), trust=trust)
    # The comparison with every token reads the inputs of the run it belongs to.
    own = run.inputs.is_dir()
    inputs = open_prepared(run.inputs if own else run.path.parent / run.inputs.name)
    usable = config.model_copy(update={"model": loadable_attention(config.model)})
    models = build_prepared_models(usable, inputs)
    checkpoint = load_checkpoint(path, which)
    load_weights(models, checkpoint.tensors, torch.device("cpu"))
    models.classifier.eval()
    models.policy.eval()
    return config, models, inputs
