"""Finding a device by name, checked before use, and whether it multiplies in bfloat16."""

from __future__ import annotations

import torch

from rss_rl.errors import ConfigError


def find_device(name: str, where: str = "learner.device") -> torch.device:
    """The device called `name`, tested with a small tensor.

    Args:
        where: the key that names it, for errors.

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
            where=where,
            remedy="Use cpu, or cuda with a CUDA build of torch on a machine that has a GPU",
        ) from error
    return device


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device has native bfloat16 matrix products, rather than emulating them.

    On a CPU these are AVX512-BF16 and AMX; if this version of torch cannot tell, False.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in names)
