"""Loading checkpoint tensors into modules."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from rss_rl.errors import CheckpointError
from rss_rl.rollouts.snapshot import Models
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
