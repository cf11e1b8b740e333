"""`rss-rl doctor` finds what it is for, and says nothing where nothing is wrong."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from invoking import invoke
from kernel_cache import share_kernels

from rss_rl.api import doctor


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    share_kernels(tmp_path / ".cache" / "rss-rl")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems() -> dict[str, str]:
    """What is wrong and what to do, by name; the exit code agrees."""
    result = invoke(["doctor"])
    lines = result.stdout.splitlines()
    found = {
        line[9:23].strip(): remedy.split("-> ")[1]
        for line, remedy in pairwise(lines)
        if line.startswith("PROBLEM")
    }
    assert result.exit_code == (1 if found else 0), result.output
    return found


def test_nothing_is_wrong(home: Path) -> None:
    assert problems() == {}
    # It only looks, but that it can compile it knows from having compiled.
    assert {path.name for path in home.iterdir()} <= {".cache"}


def test_a_token_that_others_can_read(home: Path) -> None:
    token = home / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("abc")
    token.chmod(0o644)
    assert problems() == {"token": f"chmod 600 {token}"}
    token.chmod(0o600)
    assert problems() == {}


@pytest.mark.usefixtures("home")
def test_clusters_that_would_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert set(problems()) == {"token"}


@pytest.mark.usefixtures("home")
def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LIBRARIES", ("torch", "no-library"))
    assert problems() == {"versions": "Install with pip: no-library"}
