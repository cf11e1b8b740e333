"""Configurations shipped with the package, in a wheel or a checkout."""

from __future__ import annotations

from pathlib import Path

from rss_rl.errors import ConfigError, nearest

_PACKAGE = Path(__file__).resolve().parent
_TABLES, _SPACES = "tables", "tune"
_NO_RUNS = ("cluster", _TABLES, _SPACES)
_KINDS = {_TABLES: "table", _SPACES: "search space"}


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

    Without `cluster/`, `tables/` and `tune/`, which describe clusters, tables and search spaces.
    """
    root = configs_root()
    names = (path.relative_to(root).with_suffix("") for path in root.rglob("*.yaml"))
    return sorted(name.as_posix() for name in names if name.parts[0] not in _NO_RUNS)


def find_config(name: str | Path) -> Path:
    """The configuration file called `name`.

    Args:
        name: a path to a YAML file, or the name of a shipped one, with or without `configs/` and
            `.yaml`.

    Raises:
        ConfigError: neither exists; names the nearest shipped one.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = packaged_configs()
    short = Path(*path.parts[1:]) if path.parts[:1] == ("configs",) else path
    short = short.with_suffix("") if short.suffix in (".yaml", ".yml") else short
    if short.as_posix() in shipped:
        return configs_root() / f"{short.as_posix()}.yaml"
    raise ConfigError(
        f"no such configuration{nearest(short.as_posix(), shipped)}",
        where=str(name),
        remedy=f"Give the path of a YAML file or one of: {', '.join(shipped)}",
    )


def packaged_tables() -> list[str]:
    """Names of the shipped tables: `sick`, `snli`, ..."""
    return _names(_TABLES)


def find_table(name: str | Path) -> Path:
    """The file of the table called `name`: a path or a shipped name; else a ConfigError."""
    return _find(name, _TABLES)


def packaged_spaces() -> list[str]:
    """Names of the shipped search spaces: `policy`, `classifier`."""
    return _names(_SPACES)


def find_space(name: str | Path) -> Path:
    """The file of the search space called `name`; as `find_table`."""
    return _find(name, _SPACES)


def _names(folder: str) -> list[str]:
    return sorted(path.stem for path in (configs_root() / folder).glob("*.yaml"))


def _find(name: str | Path, folder: str) -> Path:
    path, shipped = Path(name), _names(folder)
    if path.is_file():
        return path
    if str(name) in shipped:
        return configs_root() / folder / f"{name}.yaml"
    raise ConfigError(
        f"no such {_KINDS[folder]}{nearest(str(name), shipped)}",
        where=str(name),
        remedy=f"Give the path of a YAML file or one of: {', '.join(shipped)}",
    )
