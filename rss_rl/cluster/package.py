"""The code that is sent to a cluster with a job: the package and one resolved configuration."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from rss_rl.errors import ClusterError
from rss_rl.packaged import configs_root
from rss_rl.version import VERSION

CONFIG_NAME = "config.yaml"
LARGEST_PACKAGE = 32 * 2**20
"""Bytes; the code has less than a million, so more means that other files are in the package."""

STOP_WAIT_S = 60
"""Seconds between SIGTERM and SIGKILL for a job, to end an update and write a checkpoint."""

_PACKAGE = Path(__file__).resolve().parents[1]
_KINDS = (".cpp", ".css", ".h", ".html", ".js", ".py", ".typed", ".yaml")


@dataclass(frozen=True)
class PackedCode:
    """A directory ready to be sent.

    root   contains rss_rl and config.yaml
    files  number of files; size: total bytes
    """

    root: Path
    files: int
    size: int


def pack_code(target: Path, config: str) -> PackedCode:
    """Copy the package, from a checkout or an installed wheel, and the configuration.

    Args:
        target: directory to fill; it must not exist.
        config: text of the resolved configuration.

    Raises:
        ClusterError: the code is larger than `LARGEST_PACKAGE`.
    """
    _copy(_PACKAGE, target / "rss_rl")
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
            where=str(_PACKAGE.parent),
            remedy="Move data out of the package: it belongs where 'data' of the configuration"
            " points",
        )
    return packed


def _write_metadata(target: Path) -> None:
    """Write the entry points, by which components are found without an installation."""
    points: dict[str, list[str]] = {}
    for point in distribution("rss-rl").entry_points:
        points.setdefault(point.group, []).append(f"{point.name} = {point.value}")
    folder = target / f"rss_rl-{VERSION}.dist-info"
    folder.mkdir()
    sections = ("\n".join([f"[{group}]", *lines]) for group, lines in points.items())
    (folder / "entry_points.txt").write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    metadata = f"Metadata-Version: 2.1\nName: rss-rl\nVersion: {VERSION}\n"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    # In a checkout, rss_rl/envs and rss_rl/learners are links, which Path.rglob does not follow.
    for folder, _, names in os.walk(source, followlinks=True):
        copy = target / Path(folder).relative_to(source)
        if copy.name == "__pycache__":
            continue
        for name in names:
            if Path(name).suffix in _KINDS:
                copy.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(folder, name), copy / name)
