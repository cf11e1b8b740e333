"""The device a name means, checked before anything is put there."""

from __future__ import annotations

__all__ = ["find_device"]

import torch

from rss_rl.errors import ConfigError


def find_device(name: str) -> torch.device:
    """The device called `name`, seen to work.

    Raises:
        ConfigError: no such device, or this installation of torch cannot use it.
    """
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"the device '{name}' cannot be used: {reason}",
            where="learner.device",
            remedy="Use cpu, or cuda with a CUDA build of torch on a machine that has a GPU",
        ) from error
    return device
