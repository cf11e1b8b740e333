"""What travels to a cluster with a job: the three packages and one resolved configuration."""

from __future__ import annotations

__all__ = ["CONFIG_NAME", "LARGEST_PACKAGE", "STOP_WAIT_S", "PackedCode", "pack_code"]

import importlib.util
import shutil
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from rss_rl.errors import ClusterError
from rss_rl.packaged import configs_root
from rss_rl.version import VERSION

CONFIG_NAME = "config.yaml"
LARGEST_PACKAGE = 32 * 2**20
"""Bytes; the code is below one million, so that more means that something else got in."""

STOP_WAIT_S = 60
"""Seconds a job is given between SIGTERM and SIGKILL: to end an update and write a checkpoint."""

_PACKAGES = ("rss_rl", "envs", "learners")
_KINDS = (".cpp", ".css", ".h", ".html", ".js", ".py", ".typed", ".yaml")


@dataclass(frozen=True)
class PackedCode:
    """A directory ready to be sent.

    root   holds rss_rl, envs, learners and config.yaml
    files  number of files; size: bytes of all
    """

    root: Path
    files: int
    size: int


def pack_code(target: Path, config: str) -> PackedCode:
    """Copy the packages, from a checkout or an installed wheel, and the configuration.

    Args:
        target: directory to fill; it must not exist.
        config: text of the resolved configuration.

    Raises:
        ClusterError: the code is unbelievably large.
    """
    for name in _PACKAGES:
        _copy(_home(name), target / name)
    _copy(configs_root(), target / "rss_rl" / "configs")
    _write_metadata(target)
    (target / CONFIG_NAME).write_text(config, encoding="utf-8")
    sizes = {path: path.stat().st_size for path in target.rglob("*") if path.is_file()}
    packed = PackedCode(target, len(sizes), sum(sizes.values()))
    if packed.size > LARGEST_PACKAGE:
        largest = max(sizes, key=sizes.__getitem__)
        raise ClusterError(
            f"the code to send has {packed.size / 1e6:.0f} MB; its largest file is"
            f" {largest.relative_to(target)}",
            where=str(_home("rss_rl").parent),
            remedy="Move data out of the packages: it belongs where 'data' of the configuration"
            " points",
        )
    return packed


def _write_metadata(target: Path) -> None:
    """By their entry points the components are found where the code is not installed."""
    points: dict[str, list[str]] = {}
    for point in distribution("rss-rl").entry_points:
        points.setdefault(point.group, []).append(f"{point.name} = {point.value}")
    folder = target / f"rss_rl-{VERSION}.dist-info"
    folder.mkdir()
    sections = ("\n".join([f"[{group}]", *lines]) for group, lines in points.items())
    (folder / "entry_points.txt").write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    metadata = f"Metadata-Version: 2.1\nName: rss-rl\nVersion: {VERSION}\n"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")


def _home(name: str) -> Path:
    """The directory of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ClusterError(f"package '{name}' is not installed", remedy="Install rss-rl again")
    return Path(spec.submodule_search_locations[0])


def _copy(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.suffix in _KINDS and path.is_file() and "__pycache__" not in path.parts:
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
