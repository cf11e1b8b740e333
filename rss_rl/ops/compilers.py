"""Whether kernels can be compiled on this machine, and for which devices."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

import torch

from rss_rl.ops.native import KernelsError, load_kernels

_OLDEST = (7, 0)
"""Lowest compute capability for which torch itself uses Triton."""


def missing_compiler() -> str | None:
    """What this machine lacks to compile kernels for its CPU; None if nothing.

    Compiles the kernels to find out, unless they are cached.
    """
    try:
        load_kernels()
    except KernelsError as error:
        return str(error)
    return None


def missing_triton() -> str | None:
    """What this machine lacks to compile kernels for its CUDA devices; None if nothing."""
    if importlib.util.find_spec("triton") is None:
        return "there is no package 'triton'"
    compilers = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    if not any(map(shutil.which, compilers)):
        return f"there is no C compiler {' or '.join(map(repr, compilers))}"
    headers = Path(sysconfig.get_path("include"))
    found = (headers / "Python.h").is_file()
    return None if found else f"Python's C headers are not in {headers}"


@functools.cache
def runs_triton(device: torch.device) -> bool:
    """Whether Triton kernels can be compiled here and run on this CUDA device."""
    return missing_triton() is None and torch.cuda.get_device_capability(device) >= _OLDEST
