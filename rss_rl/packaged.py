"""Configurations shipped with the package, in a wheel or a checkout."""

from __future__ import annotations

import os
from pathlib import Path

from rss_rl.errors import ConfigError, nearest

_PACKAGE = Path(__file__).resolve().parent
_SWEEPS = "sweeps"


def configs_root() -> Path:
    """The directory of the shipped YAML files.

    Raises:
        ConfigError: the installation has none.
    """
    for candidate in (_PACKAGE / "configs", _PACKAGE.parent / "configs"):
        if candidate.is_dir():
            return candidate
    raise ConfigError(
        "the shipped configurations are missing",
        where=str(_PACKAGE / "configs"),
        remedy="Install rss-rl again from a wheel or with 'pip install -e .' in a checkout",
    )


def packaged_configs() -> list[str]:
    """Names of the shipped configurations without their suffix: `sick`, `paper/snli`, ...

    Without `sweeps/`, which describes sweeps.
    """
    root = configs_root()
    names = (path.relative_to(root).with_suffix("") for path in root.rglob("*.yaml"))
    return sorted(name.as_posix() for name in names if name.parts[0] != _SWEEPS)


def find_config(name: str | Path) -> Path:
    """The configuration file called `name`.

    Args:
        name: a path to a YAML file, or the name of a shipped one, with or without `configs/` and
            `.yaml`.

    Raises:
        ConfigError: neither exists; names the nearest shipped one.
    """
    path = Path(name)
    short = Path(*path.parts[1:]) if path.parts[:1] == ("configs",) else path
    short = short.with_suffix("") if short.suffix in (".yaml", ".yml") else short
    return _found(path, configs_root(), short.as_posix(), packaged_configs(), "configuration")


def _found(path: Path, root: Path, name: str, shipped: list[str], what: str) -> Path:
    """The file at `path`, else the one that is shipped by this name."""
    if os.path.isfile(path):
        return path
    if name in shipped:
        return root / f"{name}.yaml"
    raise ConfigError(
        f"no such {what}{nearest(name, shipped)}",
        where=str(path),
        remedy=f"Give the path of a YAML file or one of: {', '.join(shipped)}",
    )


def packaged_sweeps() -> list[str]:
    """Names of the shipped specifications of sweeps: `sick`, `snli`, ..."""
    return sorted(path.stem for path in (configs_root() / _SWEEPS).glob("*.yaml"))


def find_sweep(name: str | Path) -> Path:
    """The specification called `name`: a path, or a shipped name.

    Raises:
        ConfigError: neither exists; names the nearest shipped one.
    """
    root = configs_root() / _SWEEPS
    return _found(Path(name), root, str(name), packaged_sweeps(), "specification of a sweep")
