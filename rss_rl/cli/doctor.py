"""`rss-rl doctor`: checks for the most common reasons why a run cannot start."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import Parameter

from rss_rl.api.terminal import say
from rss_rl.cli.show import console
from rss_rl.errors import RssError
from rss_rl.version import installed_version

_LIBRARIES = ("torch", "ray", "gymnasium", "numpy", "pyarrow")
_SHARED_MEMORY = Path("/dev/shm")
_STORE_MB = 512


class Finding(NamedTuple):
    """The result of one check; `remedy` is empty if nothing is wrong."""

    name: str
    found: str
    remedy: str = ""


def doctor(*, run_dir: Annotated[Path, Parameter(metavar="DIR")] = Path("runs")) -> None:
    """Check whether a run can start on this machine; exit code 1 if not.

    Args:
        run_dir: Where runs are kept.

    Examples:
        `rss-rl doctor --run-dir /data/runs` checks this machine and that directory.
    """
    findings = [
        *_versions(),
        _devices(),
        _compiler(),
        _token(),
        _shared_memory(),
        _writable(run_dir),
    ]
    out = console()
    for name, found, remedy in findings:
        mark = "PROBLEM" if remedy else "ok"
        say(out, f"{mark:8} {name:14} {found}")
        if remedy:
            say(out, f"{'':8} {'':14} -> {remedy}")
    if any(finding.remedy for finding in findings):
        raise SystemExit(1)


def _versions() -> list[Finding]:
    findings = [Finding("python", platform.python_version())]
    for name in _LIBRARIES:
        found = installed_version(name)
        remedy = "" if found else f"Install it: pip install {name}"
        findings.append(Finding(name, found or "not installed", remedy))
    return findings


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


def _shared_memory() -> Finding:
    if not _SHARED_MEMORY.is_dir():
        return Finding("shared memory", f"no {_SHARED_MEMORY} on this system")
    space = os.statvfs(_SHARED_MEMORY)
    free = space.f_bavail * space.f_frsize // 2**20
    remedy = f"Ray needs {_STORE_MB} MB; docker: --shm-size=1g" if free < _STORE_MB else ""
    return Finding("shared memory", f"{free} MB free", remedy)


def _writable(run_dir: Path) -> Finding:
    folder = run_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return Finding("run directory", f"{run_dir}: can be written")
    except OSError as error:
        return Finding("run directory", f"{folder}: {error.strerror}", "Give another --run-dir")
