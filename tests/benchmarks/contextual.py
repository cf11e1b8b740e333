"""An update of a policy that reads states stored with the data, beside one on word vectors alone.

    python tests/benchmarks/contextual.py --data prepared/eraser-movies --pretrained FOLDER

DATA is encoded for `transformer/movies`. Co-training updates of it and of `movies`, in turns on
one thread; CPU time, medians of the turns.
"""

from __future__ import annotations

__all__: list[str] = []

import argparse
import statistics
import time

import torch

from rss_rl.config import load_config
from rss_rl.logs.events import NO_LOG
from rss_rl.packaged import find_config
from rss_rl.rollouts.snapshot import open_data
from rss_rl.training.learner import LocalLearner
from rss_rl.training.roles import LocalRoles
from rss_rl.training.session import Session

_UPDATES = 3
_ENDLESS = (
    "phases=[{name: co-train, supervised: true, policy: true, steps: 100000, mixed_share: 0.5}]",
    "learner.supervised.decay_updates=null",
    "learner.policy.decay_updates=null",
    "evaluation.all_tokens=false",
)


def session(name: str, *settings: str) -> Session:
    """A run of that configuration that co-trains."""
    config = load_config(find_config(name), [*_ENDLESS, *settings])
    prepared, roles = open_data(config), LocalRoles()
    learner = LocalLearner(config, prepared)
    return Session(config, prepared, learner, lambda: roles.backend(config, prepared, NO_LOG))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--pretrained", required=True)
    parser.add_argument("--turns", type=int, default=6)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = f"data={given.data}"
    sessions = {
        "word vectors": session("movies", data),
        "in context": session("transformer/movies", data, f"policy.pretrained={given.pretrained}"),
    }
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(given.turns + 1):
        for name, each in sessions.items():
            started = time.process_time()
            for _ in range(_UPDATES):
                each.update()
            if turn:  # the first turn is slower
                times[name].append(1000 * (time.process_time() - started) / _UPDATES)
    for name, found in times.items():
        print(f"{name}: {statistics.median(found):.0f} ms ({min(found):.0f} to {max(found):.0f})")


if __name__ == "__main__":
    main()
