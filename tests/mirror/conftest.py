"""Claims of a storage path in no time where nobody competes for it, and little patience."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_competition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim does not wait for others, but in the tests of the lease itself."""
    if request.module.__name__.rpartition(".")[2] != "test_mirror_lease":
        monkeypatch.setattr("rss_rl.mirror.lease._SETTLE_S", 0.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lease", "mirror"):
        monkeypatch.setattr(f"rss_rl.mirror.{module}.RENEW_S", 5.0)
    quick = {"_RETRY_S": 0.001, "_LONGEST_RETRY_S": 0.001, "_DRAIN_S": 20.0, "_LAST_TRIES": 2}
    for name, value in quick.items():
        monkeypatch.setattr(f"rss_rl.mirror.mirror.{name}", value)
