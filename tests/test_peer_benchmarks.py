"""What the comparison with other systems rests on: one task, one count of sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import sampling
import torch
from gymnasium.vector import AutoresetMode
from peer_own import Pipeline, PlainLoop, VectorLoop
from peer_task import (
    BATCH,
    ENVS,
    LONGEST,
    Network,
    RightBits,
    Sentences,
    make_env,
    task_of,
)
from suite.timing import Settings


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


def test_the_network_does_not_look_at_padding() -> None:
    task = task_of("bits")
    observation, _ = make_env(task, ENVS, AutoresetMode.SAME_STEP).reset(seed=0)
    shown = {name: torch.from_numpy(values) for name, values in observation.items()}
    net = Network(task)
    logits, real = net.logits(shown)
    assert logits.shape == real.shape == (ENVS, 2 * LONGEST)
    shorter = {name: values[:, :-1] for name, values in shown.items()}
    whole = shown["valid_0"].sum(1) < LONGEST
    torch.testing.assert_close(net.value(shown)[whole], net.value(shorter)[whole])
    assert real.sum(1).tolist() == (2 * shown["valid_0"].sum(1)).tolist()


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


class Rates:
    """A worker whose every turn has the rate that its name stands for; remembers who was asked."""

    asked: ClassVar[list[str]] = []
    rates: ClassVar[dict[str, float]] = {"PPO 1": 10.0, "APPO 1": 40.0, "IMPALA 1": 20.0}

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Rates:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, name: str) -> float:
        self.asked.append(name)
        return self.rates.get(name.partition(" ")[2], 80.0)


class Still:
    """A system that does nothing, at once."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def sample(self) -> int:
        return BATCH

    train = sample


def test_all_systems_take_turns_with_every_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "Worker", Rates)
    monkeypatch.setattr(sampling, "PYTHON", Path(__file__))
    monkeypatch.setitem(sampling.STRETCH_S, "ours", 0.0)
    for name in ("Pipeline", "PlainLoop", "SB3"):
        monkeypatch.setattr(sampling, name, Still)
    records = {record.name: record for record in sampling.peers(Settings(repeats=2))}
    learnt = "peers/bits/sampling and update, "
    assert records[f"{learnt}RLlib's best, one step an episode"].theirs == 40
    assert records[f"{learnt}RLlib's best, 16 an episode"].theirs == 80
    assert records[f"{learnt}RLlib IMPALA, one step an episode"].theirs == 20
    assert records["peers/bits/sampling, RLlib's best, one step an episode"].theirs == 10
    assert {f"{learnt}SB3 PPO", f"{learnt}a plain torch loop"} <= records.keys()
    assert len(records) == (2 + 2 + 2) + (2 + 6 + 2)
    assert {name: Rates.asked.count(name) for name in Rates.asked} == dict.fromkeys(
        [f"{mode} {name} {n}" for mode, names in sampling.ALGORITHMS.items() for name in names
         for n in (1, 16)], 3,
    )  # fmt: skip
