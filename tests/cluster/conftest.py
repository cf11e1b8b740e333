"""Ray keeps the way it authenticates in compiled code, where no environment's undoing reaches."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rss_rl.cluster.connection import token_mode


@pytest.fixture(scope="module", autouse=True)
def ray_as_it_was() -> Iterator[None]:
    yield
    token_mode(os.environ.get("RAY_AUTH_MODE"))
