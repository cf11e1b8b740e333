"""What the comparison with other systems rests on: one task, one count of sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from peer_own import Pipeline, PlainLoop, VectorLoop
from peer_task import (
    BATCH,
    ENVS,
    RightBits,
    Sentences,
)


def test_right_bits_are_paid_by_their_share() -> None:
    model, source = RightBits(), Sentences(16)
    batch = source.batch(range(16))
    tokens, valid = torch.from_numpy(batch.tokens[0]), torch.from_numpy(batch.valid[0])
    wanted = model.wanted[tokens].transpose(1, 2)

    def paid(selection: torch.Tensor) -> list[float]:
        return (-model.losses(model([tokens], [valid], [selection]), tokens[:, 0])).tolist()

    assert paid(wanted) == [1.0] * 16
    assert paid(~wanted) == [0.0] * 16
    one_wrong = wanted.clone()
    one_wrong[:, 0, 0] ^= True
    assert paid(one_wrong) == pytest.approx((1 - 1 / (2 * batch.valid[0].sum(1))).tolist())


@pytest.mark.parametrize(
    "system",
    [
        lambda: Pipeline("bits"),
        lambda: Pipeline("bits", 4),
        lambda: VectorLoop(ENVS, "bits"),
        lambda: PlainLoop(ENVS, "bits"),
    ],
    ids=["pipeline", "4 selections", "vector", "plain"],
)
def test_every_way_of_ours_learns_the_task(system: Any) -> None:
    made = system()
    assert [made.train() for _ in range(20)] == [BATCH] * 20
    first, *_, last = np.array(made.rewards).reshape(20, -1).mean(1)
    assert first == pytest.approx(0.5, abs=0.03)
    assert last > 0.53  # chance has a standard error of 0.002
