"""What the comparison with other systems rests on: they learn one task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peer_own import Pipeline, PlainLoop
from peer_task import BATCH


@pytest.mark.parametrize("system", [Pipeline, PlainLoop])
def test_ours_and_the_plain_loop_learn_the_task(system: Any) -> None:
    made = system("bits")
    assert [made.train() for _ in range(20)] == [BATCH] * 20
    first, *_, last = np.array(made.rewards).reshape(20, -1).mean(1)
    assert first == pytest.approx(0.5, abs=0.03)
    assert last > 0.53  # chance has a standard error of 0.002
