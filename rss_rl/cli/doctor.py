"""`rss-rl doctor`: checks for the most common reasons why a run cannot start."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.options import argument, console, option
from rss_rl.errors import RssError
from rss_rl.version import installed_version

EPILOG = """
Examples:

`rss-rl doctor` checks this machine.

`rss-rl doctor sick sampler.backend=ray sampler.actors=4` also checks whether this run fits on it.
"""

_LIBRARIES = ("torch", "ray", "gymnasium", "numpy", "pyarrow")
_SHARED_MEMORY = Path("/dev/shm")
_STORE_MB = 512


class Finding(NamedTuple):
    """The result of one check; `remedy` is empty if nothing is wrong."""

    name: str
    found: str
    remedy: str = ""


def doctor(
    config: Annotated[
        str | None, argument("[CONFIG]", "Configuration of the run to check.")
    ] = None,
    overrides: options.Overrides = None,
    run_dir: Annotated[Path, option("--run-dir DIR", "Directory of that run.")] = Path("runs"),
) -> None:
    """Check whether a run can start on this machine; exit code 1 if not."""
    findings = [
        *_versions(),
        _devices(),
        _bfloat16(),
        _cores(config, overrides or []),
        _compiler(),
        _token(),
        _shared_memory(),
        _writable(run_dir),
        _package(),
    ]
    out = console()
    for name, found, remedy in findings:
        mark = "PROBLEM" if remedy else "ok"
        say(out, f"{mark:8} {name:14} {found}")
        if remedy:
            say(out, f"{'':8} {'':14} -> {remedy}")
    if any(finding.remedy for finding in findings):
        raise typer.Exit(1)


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


def _bfloat16() -> Finding:
    """Never a problem: with precision=auto a run does the faster of both."""
    import torch

    from rss_rl.rollouts.device import multiplies_bfloat16

    native = multiplies_bfloat16(torch.device("cpu"))
    return Finding(
        "bfloat16", f"products are {'native' if native else 'emulated, slowly'} on the cpu"
    )


def _cores(start: str | None, overrides: list[str]) -> Finding:
    """Check that no more threads compute at a time than there are cores."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if start is None:
        return Finding("cores", str(cores))
    from rss_rl.config import load_config
    from rss_rl.packaged import find_config

    config = load_config(find_config(start), overrides)
    learner, sampler = config.learner, config.sampler
    shares = [max(1, learner.actors) * learner.threads]
    if sampler.backend == "ray":
        shares.append(sampler.actors * sampler.threads)
    threads = max(shares) if sampler.max_policy_lag == 0 else sum(shares)  # 0: they take turns
    found = f"{cores}; threads of learners and samplers: {' and '.join(map(str, shares))}"
    remedy = "Fewer learner.threads, sampler.actors or sampler.threads" if threads > cores else ""
    return Finding("cores", found, remedy)


def _compiler() -> Finding:
    """Whether kernels can be compiled; never a problem, as attention has other implementations."""
    from rss_rl.models.attention_choice import missing_for_kernels

    missing = missing_for_kernels()
    return Finding("compiler", missing or "found: attention and layers around it run in kernels")


def _token() -> Finding:
    from rss_rl.cluster.auth import MODE_VARIABLE, find_token, switched_off

    mode = os.environ.get(MODE_VARIABLE, "unset")
    if switched_off():
        return Finding("token", f"{MODE_VARIABLE}={mode}", f"Unset {MODE_VARIABLE}: no token check")
    try:
        token = find_token()
    except RssError as error:
        return Finding("token", error.what, f"{error.where}: {error.remedy}")
    if token is None:
        return Finding("token", "none yet; made when samplers are first started with Ray")
    if token.mode is None:
        return Finding("token", f"from {token.source}")
    remedy = f"chmod 600 {token.path}" if token.mode & 0o077 else ""
    return Finding("token", f"{token.source}, mode {token.mode:04o}", remedy)


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


def _package() -> Finding:
    from rss_rl.cluster.package import pack_code

    with tempfile.TemporaryDirectory() as folder:
        try:
            packed = pack_code(Path(folder) / "code", "")
        except RssError as error:
            return Finding("package", error.what, error.remedy)
    return Finding("package", f"{packed.size / 1e6:.2f} MB in {packed.files} files for 'submit'")
