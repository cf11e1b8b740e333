"""Scalars as Prometheus gauges: scraped from a real Ray node, without a dashboard."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray_nodes import own_ray

from rss_rl.cluster.roles import PrometheusLogger, gauge_name
from rss_rl.logs.metric_registry import METRICS
from rss_rl.logs.metrics import MetricsWriter


@pytest.fixture
def address() -> Iterator[str]:
    """Where the metrics of a local Ray are."""
    with own_ray(1, _system_config={"metrics_report_interval_ms": 200}):
        (node,) = ray.nodes()
        yield f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"


def scrape(address: str) -> list[str]:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            text = answer.read().decode()
    except urllib.error.URLError:  # the agent is not up yet
        return []
    return [line for line in text.splitlines() if line.startswith("ray_rss_rl_")]


def test_scalars_can_be_scraped(address: str, tmp_path: Path) -> None:
    with MetricsWriter(tmp_path, loggers=[PrometheusLogger("my-run")]) as writer:
        writer.scalars(6, {"train/loss": 0.5, "policy/lag": 1})
        writer.scalars(7, {"train/loss": 0.25, "policy/loss": float("nan")})
        writer.scalars(7, {"reward/sparsity_cost": 2})  # described with letters Ray does not take
    wanted = {"train_loss": "0.25", "policy_lag": "1", "metrics_non_finite": "1"}
    wanted |= {"update": "7", "reward_sparsity_cost": "2"}
    deadline, found = time.monotonic() + 40, {}
    while found != wanted and time.monotonic() < deadline:
        lines = scrape(address)
        assert all('run="my-run"' in line for line in lines)
        found = {
            line.partition("{")[0].removeprefix("ray_rss_rl_"): f"{float(line.split()[-1]):g}"
            for line in lines
        }
        time.sleep(0.2)
    assert found == wanted


def test_every_tag_has_a_gauge_of_its_own() -> None:
    names = [gauge_name(tag) for tag in METRICS]
    assert len(set(names)) == len(names)
    assert all(name.replace("_", "").isalnum() for name in names)
