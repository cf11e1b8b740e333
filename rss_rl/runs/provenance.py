"""The provenance of a run: versions of the program and its libraries, and the data's digest."""

from __future__ import annotations

import functools
import hashlib
import platform
import subprocess
from pathlib import Path
from typing import Any

from rss_rl.data.store import Prepared
from rss_rl.version import VERSION, installed_version

_LIBRARIES = ("torch", "ray", "gymnasium", "numpy", "pyarrow", "pydantic", "tensorboard")
_SOURCE = Path(__file__).resolve().parents[2]
_GIT_SECONDS = 5


def provenance(prepared: Prepared) -> dict[str, Any]:
    """Version and commit of rss-rl, versions of its libraries, and the SHA-256 of the data's
    manifest, which holds the sizes and counts of all its files; plain JSON data."""
    manifest = prepared.manifest.model_dump_json()
    return {
        "rss_rl": VERSION,
        "commit": _commit(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "libraries": {name: installed_version(name) for name in _LIBRARIES},
        "data": {
            "name": prepared.manifest.name,
            "manifest_sha256": hashlib.sha256(manifest.encode()).hexdigest(),
        },
    }


@functools.cache
def _commit() -> str | None:
    """Commit of the checkout that runs, with `-dirty` if files differ; None outside a checkout."""
    if not (_SOURCE / ".git").exists():
        return None
    how = "--always", "--dirty", "--abbrev=40", "--exclude=*"
    command = ["git", "-C", str(_SOURCE), "describe", *how]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
