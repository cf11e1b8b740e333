"""Shipped configurations are found by name, by path, and by a near miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from rss_rl.errors import ConfigError
from rss_rl.packaged import configs_root, find_config, packaged_configs


def test_shipped_configurations_are_found_by_name(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert configs_root() == repository / "configs"
    assert "sick" in packaged_configs()
    expected = repository / "configs" / "sick.yaml"
    for name in ("sick", "sick.yaml", "configs/sick.yaml", "configs/sick"):
        assert find_config(name) == expected


def test_a_file_comes_before_a_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sick.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert find_config("sick.yaml") == Path("sick.yaml")


def test_a_near_miss_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"sikc: no such configuration; did you mean 'sick'\?"):
        find_config("sikc")
