"""Sentences a second of sampling, and of sampling with an update: ours and other systems'.

Benchmarks of `bench.py`: `sampling` compares within one process (a plain torch loop,
Stable-Baselines3's PPO), `peers` and `peers-classifier` all these with RLlib too, in the
environment that `make peers` builds. All run the task of `peer_task`: 128 sentences side by side,
updates of 2048 that are seen once, one thread. Ours is what `rss-rl train` does, with one selection
a sentence: `Sampler`, Arrow, the learner, publishing. RLlib's APPO and IMPALA have a second process
for their sampler; its PPO and the others have not.
"""

from __future__ import annotations

__all__ = ["peers", "peers_classifier", "sampling"]

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from peer_own import Pipeline, PlainLoop, VectorLoop
from peer_sb3 import SB3
from peer_task import BATCH, ENVS, PYTHON, TRICK
from suite.records import Record, compared
from suite.timing import Settings, Turn, in_turns, seconds_of
from suite.workers import Worker

UNIT = "sentences/s"
REWARDS = ("bits", "classifier")
MODES = {"sample": "sampling", "train": "sampling and update"}
ALGORITHMS = {"sample": ("PPO",), "train": ("PPO", "APPO", "IMPALA")}
"""RLlib's; what samples is the same for all, and with the others it would continue by itself."""
EPISODES = {1: "one step an episode", TRICK: f"{TRICK} an episode"}
STRETCH_S = {"ours": 0.5, "theirs": 1.0}


def _rate(work: Callable[[], int], clock: str, least_s: float) -> Turn:
    """Sentences a second; every call of `work` does a batch."""
    return lambda: BATCH / seconds_of(work, clock, least_s=least_s)


def sampling(settings: Settings) -> Iterator[Record]:
    """Both rewards, with and without updates, beside a plain loop and Stable-Baselines3."""
    torch.set_num_threads(1)
    for reward in REWARDS:
        systems: dict[str, Any] = {
            "ours": Pipeline(reward),
            "8 selections": Pipeline(reward, 8),
            "vector": VectorLoop(ENVS, reward),
            "plain": PlainLoop(ENVS, reward),
            "SB3": SB3(ENVS, reward),
        }
        for mode, called in MODES.items():
            turns = {
                name: _rate(getattr(system, mode), settings.clock, 0.5)
                for name, system in systems.items()
            }
            found = in_turns(turns, settings.repeats)
            room = f"sampling/{reward}/{called}"
            for name, ours, theirs in (
                ("a plain torch loop", "ours", "plain"),
                ("SB3 PPO", "ours", "SB3"),
                ("vector environment, a plain torch loop", "vector", "plain"),
                ("8 selections a sentence, one", "8 selections", "ours"),
            ):
                yield compared(f"{room}, {name}", found[ours], found[theirs], UNIT)


def peers(settings: Settings) -> Iterator[Record]:
    """All systems in turns, with the trivial reward; see `_peers`."""
    yield from _peers("bits", settings)


def peers_classifier(settings: Settings) -> Iterator[Record]:
    """All systems in turns, with a classifier's reward; see `_peers`."""
    yield from _peers("classifier", settings)


def _peers(reward: str, settings: Settings) -> Iterator[Record]:
    """Ours beside RLlib's algorithms, the best of them, and the systems of this process.

    Raises:
        FileNotFoundError: without RLlib's environment.
    """
    if not PYTHON.exists():
        raise FileNotFoundError(f"{PYTHON}: run `make peers` first")
    torch.set_num_threads(1)
    systems: dict[str, Any] = {
        "ours": Pipeline(reward),
        "a plain torch loop": PlainLoop(ENVS, reward),
        "SB3 PPO": SB3(ENVS, reward),
    }
    given = {"reward": reward, "seconds": STRETCH_S["theirs"]}
    with Worker(
        "peer_rllib:turns", given, python=str(PYTHON), environment={"OMP_NUM_THREADS": "1"},
        timeout_s=600,
    ) as worker:  # fmt: skip
        for mode, called in MODES.items():
            turns: dict[str, Turn] = {
                # Always the wall clock: RLlib is several processes.
                name: _rate(getattr(system, mode), "wall", STRETCH_S["ours"])
                for name, system in systems.items()
            }
            for sentences in EPISODES:
                for name in ALGORITHMS[mode]:
                    turn = partial(worker, f"{mode} {name} {sentences}")
                    turns[_called(name, sentences)] = turn
            found = in_turns(turns, settings.repeats)
            yield from _beside_ours(f"peers/{reward}/{called}", found, ALGORITHMS[mode])


def _called(algorithm: str, sentences: int) -> str:
    return f"RLlib {algorithm}, {EPISODES[sentences]}"


def _beside_ours(
    room: str, found: dict[str, list[float]], algorithms: Sequence[str]
) -> Iterator[Record]:
    """A record for each rival, and for RLlib's best of each kind of episode."""
    for name, rates in found.items():
        if name != "ours":
            yield compared(f"{room}, {name}", found["ours"], rates, UNIT)
    for sentences, kind in EPISODES.items():
        rates = max((found[_called(name, sentences)] for name in algorithms), key=statistics.median)
        yield compared(f"{room}, RLlib's best, {kind}", found["ours"], rates, UNIT)
