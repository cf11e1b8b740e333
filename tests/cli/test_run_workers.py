"""A cluster that was started for the runs of a table ends with them, whatever happens."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rss_rl.cli.table import run_workers
from rss_rl.errors import ConfigError
from rss_rl.results.tables.execute import LocalWorkers

TABLES = Path("tables")


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def connect(_: str | None, *, cores: int) -> Any:
        found.append(f"connect {cores}")
        return SimpleNamespace(notes=["a note"])

    def workers(jobs: int, folder: Path, *_: object) -> Any:
        found.append(f"{jobs} in {folder}")
        return SimpleNamespace(close=lambda: found.append("close"))

    monkeypatch.setattr("rss_rl.cluster.run_workers.RayWorkers", workers)
    monkeypatch.setattr("rss_rl.cluster.connection.connect", connect)
    monkeypatch.setattr("rss_rl.cluster.connection.shutdown", lambda _: found.append("shutdown"))
    return found


def progress(happened: list[str]) -> Any:
    return SimpleNamespace(progress=lambda *_: None, tell=happened.append)


def test_the_cluster_ends_where_the_runs_fail(happened: list[str]) -> None:
    workers = run_workers(TABLES, 2, lambda: False, progress(happened))
    with pytest.raises(ConfigError, match="failed"), workers:
        raise ConfigError("failed")
    assert happened == ["connect 2", "a note", "2 in tables", "close", "shutdown"]


def test_one_run_at_a_time_needs_no_cluster(happened: list[str]) -> None:
    with run_workers(TABLES, 1, lambda: False, progress(happened)) as workers:
        assert isinstance(workers, LocalWorkers)
    assert happened == []
