"""Ray keeps its token in compiled code, where no environment's undoing reaches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ray_nodes import forget_token


@pytest.fixture(scope="module", autouse=True)
def ray_as_it_was() -> Iterator[None]:
    yield
    forget_token()
