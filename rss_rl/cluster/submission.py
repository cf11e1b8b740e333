"""A job on a Ray cluster: code and configuration, sent to its dashboard from any machine."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from rss_rl.errors import ClusterError
from rss_rl.packaged import configs_root
from rss_rl.version import VERSION

STOP_WAIT_S = 60
"""Seconds between SIGTERM and SIGKILL for a job, to end an update and write a checkpoint."""

_ADDRESS, _API_SERVER = "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"
_PACKAGE = Path(__file__).resolve().parents[1]


def pack_code(target: Path, config: str) -> int:
    """Copy the package, from a checkout or an installed wheel, and the configuration.

    Args:
        target: directory to fill; it must not exist.
        config: text of the resolved configuration.

    Returns:
        The size in bytes.
    """
    # In a checkout, rss_rl/envs and rss_rl/learners are links; what they lead to is copied.
    no_caches = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(_PACKAGE, target / "rss_rl", ignore=no_caches)
    shutil.copytree(configs_root(), target / "rss_rl" / "configs", dirs_exist_ok=True)
    _write_metadata(target)
    (target / "config.yaml").write_text(config, encoding="utf-8")
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


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


def dashboard_address(address: str | None) -> str:
    """The dashboard's URL, of `address` or RAY_ADDRESS.

    Raises:
        ClusterError: it is not one.
    """
    where = (address or os.environ.get(_ADDRESS, "")).rstrip("/")
    if not where.startswith(("http://", "https://")):
        raise ClusterError(
            "jobs are sent to the dashboard of a cluster, and this is not the address of one",
            where=where or "--address",
            remedy="Give --address http://HEAD:8265, or set RAY_ADDRESS to it",
        )
    return where


def send_job(url: str, job: dict[str, Any], *, timeout_s: float = 10.0) -> None:
    """Submit a job to the cluster whose dashboard is at `url`.

    Args:
        job: arguments of `JobSubmissionClient.submit_job`.
        timeout_s: how long to wait for a response.

    Raises:
        ClusterError: no such cluster, it must not be used, or it refuses the job.
    """
    from ray.exceptions import RayError
    from ray.job_submission import JobSubmissionClient

    from rss_rl.cluster.auth import ask_dashboard, check
    from rss_rl.cluster.connection import quiet

    token = check(ask_dashboard, url, timeout_s=timeout_s)
    headers = {"Authorization": f"Bearer {token.secret}"} if token else None
    quiet()
    # Ray would prefer these variables to the address that it is given.
    aside = {name: os.environ.pop(name) for name in (_ADDRESS, _API_SERVER) if name in os.environ}
    try:
        JobSubmissionClient(url, headers=headers).submit_job(**job)
    except (RayError, OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            " ".join(str(error).split())[-400:],  # a server's traceback ends with its reason
            where=url,
            remedy="Check that the cluster still runs, and its proxy's limits",
        ) from error
    finally:
        os.environ.update(aside)
