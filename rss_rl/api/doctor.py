"""Check what this machine lacks to train."""

from __future__ import annotations

import platform
from typing import NamedTuple

from rss_rl.errors import RssError
from rss_rl.version import installed_version

_LIBRARIES = ("torch", "ray", "gymnasium", "numpy", "pyarrow")


class Finding(NamedTuple):
    """The result of one check; `remedy` is empty if nothing is wrong."""

    name: str
    found: str
    remedy: str = ""


def doctor() -> list[Finding]:
    """Check whether a run can start on this machine; exit code 1 if not.

    Returns:
        Versions, devices, compiler, token of Ray.

    Examples:
        `rss-rl doctor`
    """
    return [_versions(), _devices(), _compiler(), _token()]


def _versions() -> Finding:
    found = {name: installed_version(name) for name in _LIBRARIES}
    shown = ", ".join(f"{name} {version or 'missing'}" for name, version in found.items())
    missing = [name for name, version in found.items() if not version]
    remedy = f"Install with pip: {' '.join(missing)}" if missing else ""
    return Finding("versions", f"python {platform.python_version()}, {shown}", remedy)


def _devices() -> Finding:
    import torch

    names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    return Finding("devices", ", ".join(["cpu", *names]))


def _compiler() -> Finding:
    """Whether kernels can be compiled; never a problem, as attention has other implementations."""
    from rss_rl.models.attention_choice import missing_for_kernels

    missing = missing_for_kernels()
    return Finding("compiler", missing or "found: attention and layers around it run in kernels")


def _token() -> Finding:
    from rss_rl.cluster.auth import MODE_VARIABLE, find_token, switched_off

    if switched_off():
        return Finding("token", f"{MODE_VARIABLE}=disabled", f"Unset {MODE_VARIABLE}")
    try:
        token = find_token()
    except RssError as error:
        return Finding("token", error.what, f"{error.where}: {error.remedy}")
    if token is None:
        return Finding("token", "none: made for each cluster that is started here")
    remedy = "" if token.is_private else f"chmod 600 {token.path}"
    return Finding("token", f"from {token.source}", remedy)
