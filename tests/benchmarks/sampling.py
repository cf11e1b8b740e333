"""Sentences a second of sampling, and of sampling with an update: ours and other systems'.

Benchmarks of `bench.py`: `sampling` compares within one process (a plain torch loop,
Stable-Baselines3's PPO), `peers` with RLlib too, in the environment that `make peers` builds. All
run the task of `peer_task`: 128 sentences side by side, updates of 2048 that are seen once, one
thread. Ours is what `rss-rl train` does, with one selection a sentence: `Sampler`, Arrow, the
learner, publishing. RLlib's APPO and IMPALA have a second process for their sampler; its PPO and
the others have not.
"""

from __future__ import annotations

__all__ = ["peers", "sampling"]

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from peer_own import Pipeline, PlainLoop
from peer_sb3 import SB3
from peer_task import BATCH, PYTHON, TRICK
from suite.records import Record, compared
from suite.timing import Settings, Turn, in_turns, seconds_of
from suite.workers import Worker

REWARDS = ("bits", "classifier")
MODES = {"sample": "sampling", "train": "sampling and update"}
EPISODES = {1: "one step an episode", TRICK: f"{TRICK} an episode"}
ALGORITHMS = {"sample": ("PPO",), "train": ("PPO", "APPO", "IMPALA")}
"""RLlib's; what samples is the same for all, and with the others it would continue by itself."""


def _systems(reward: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    return {
        "ours": Pipeline(reward),
        "a plain torch loop": PlainLoop(reward),
        "SB3 PPO": SB3(reward),
    }


def _turns(systems: dict[str, Any], mode: str, clock: str) -> dict[str, Turn]:
    """Sentences a second; every call does a batch."""

    def rate(work: Callable[[], int]) -> float:
        return BATCH / seconds_of(work, clock, least_s=0.5)

    return {name: partial(rate, getattr(system, mode)) for name, system in systems.items()}


def _beside_ours(room: str, found: dict[str, list[float]]) -> Iterator[Record]:
    for name, rates in found.items():
        if name != "ours":
            yield compared(f"{room}, {name}", found["ours"], rates, "sentences/s")


def sampling(settings: Settings) -> Iterator[Record]:
    """Both rewards, with and without updates, beside a plain loop and Stable-Baselines3."""
    for reward in REWARDS:
        systems = _systems(reward)
        for mode, called in MODES.items():
            found = in_turns(_turns(systems, mode, settings.clock), settings.repeats)
            yield from _beside_ours(f"sampling/{reward}/{called}", found)


def peers(settings: Settings) -> Iterator[Record]:
    """The same beside RLlib too; by the wall clock, as RLlib is several processes.

    Raises:
        FileNotFoundError: without RLlib's environment.
    """
    if not PYTHON.exists():
        raise FileNotFoundError(f"{PYTHON}: run `make peers` first")
    for reward in REWARDS:
        systems, one = _systems(reward), {"OMP_NUM_THREADS": "1"}
        with Worker(
            "peer_rllib:turns", {"reward": reward}, python=str(PYTHON), environment=one,
            timeout_s=600,
        ) as worker:  # fmt: skip
            for mode, called in MODES.items():
                turns = _turns(systems, mode, "wall")
                for sentences, episode in EPISODES.items():
                    for name in ALGORITHMS[mode]:
                        turn = partial(worker, f"{mode} {name} {sentences}")
                        turns[f"RLlib {name}, {episode}"] = turn
                found = in_turns(turns, settings.repeats)
                yield from _beside_ours(f"peers/{reward}/{called}", found)
