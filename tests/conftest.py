"""One thread a process: tests share the cores with each other and with the samplers they start."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

# Before torch or numpy is first imported, which is when they read it.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ["RAY_AUTH_MODE"] = "token"  # before Ray is
# One for all: each command in a test would else make its own, and Ray keeps the first it reads.
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
# Ray's workers are nice by default: beside four busy test processes they hardly ever run.
os.environ |= {"RAY_worker_niceness": "0"}

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tiny_pairs"]
REPOSITORY = Path(__file__).resolve().parent.parent

# Shared cores make single examples slow now and then: that is no finding. Derandomised, so that a
# failure seen once is seen again.
settings.register_profile(
    "shared-cores",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared-cores")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Directory of the real datasets; RSS_RL_DATA names another one than the default."""
    path = Path(os.environ.get("RSS_RL_DATA", REPOSITORY.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"real datasets are not at {path}; set RSS_RL_DATA")
    return path


@pytest.fixture(scope="module")
def no_charts() -> Iterator[None]:
    """Drawing them takes two thirds of a short fit; results/test_report_page looks at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rss_rl.results.charts._svg", lambda *_: "")
        yield
