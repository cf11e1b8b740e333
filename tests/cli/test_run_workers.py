"""A cluster that was started for the runs of a table ends with them, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
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

    def connect(*, cores: int) -> Any:
        found.append(f"connect {cores}")
        return SimpleNamespace(notes=["a note"])

    monkeypatch.setattr("rss_rl.cluster.connection.connect", connect)
    monkeypatch.setattr("rss_rl.cluster.connection.shutdown", lambda _: found.append("shutdown"))
    return found


def progress(happened: list[str]) -> Any:
    return SimpleNamespace(progress=lambda *_: None, tell=happened.append)


def finder(happened: list[str]) -> Callable[[], Any]:
    def make(jobs: int, folder: Path, *_: object) -> Any:
        happened.append(f"{jobs} in {folder}")
        return SimpleNamespace(close=lambda: happened.append("close"))

    return lambda: happened.append("found") or make


def test_the_cluster_ends_where_the_runs_fail(happened: list[str]) -> None:
    workers = run_workers(TABLES, 2, lambda: False, progress(happened), finder(happened))
    with pytest.raises(ConfigError, match="failed"), workers:
        raise ConfigError("failed")
    assert happened == ["found", "connect 2", "a note", "2 in tables", "close", "shutdown"]


def test_what_is_not_installed_is_said_before_a_cluster_is_started(happened: list[str]) -> None:
    def absent() -> Any:
        raise ConfigError("not installed")

    with (
        pytest.raises(ConfigError, match="not installed"),
        run_workers(TABLES, 2, lambda: False, progress(happened), absent),
    ):
        pass
    assert happened == []


def test_one_run_at_a_time_needs_no_cluster(happened: list[str]) -> None:
    with run_workers(TABLES, 1, lambda: False, progress(happened), finder(happened)) as workers:
        assert isinstance(workers, LocalWorkers)
    assert happened == []
