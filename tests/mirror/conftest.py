"""Claims of a storage path in no time where nobody competes for it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_competition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim does not wait for others, but in the tests of the lease itself."""
    if request.module.__name__.rpartition(".")[2] != "test_mirror_lease":
        monkeypatch.setattr("rss_rl.mirror.lease._SETTLE_S", 0.0)
