"""Two learners on synthetic pairs: in one process, or one rank of several."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import small
import torch
from torch import Tensor

from rss_rl.config import LearnerConfig, OptimizerConfig
from rss_rl.errors import LearnerError, NonFiniteError
from rss_rl.learners.group import Group, ProcessGroup, shard
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.learners.updates import RewardBatch, read
from rss_rl.models.inputs import TensorBatch
from rss_rl.seeding import example_keys

UPDATES, K, ROWS = 24, 3, 12
SIZES = (7, 5, 1, 4)
"""Examples of the updates in turn: odd, even, and fewer than there are learners."""
TIMEOUT_S = {"train": 40.0, "kill": 40.0, "hang": 4.0}
SCENARIOS: dict[str, dict[str, Any]] = {
    "leave-one-out": {"name": "ppo-clip", "baseline": "leave-one-out"},
    "moving-average": {"baseline": "moving-average"},
}
"""Options of the policy update."""
WEIGHT_AVERAGE = {"moving-average": 0.9}


def data() -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Tokens, valid and labels of ROWS pairs."""
    draw = np.random.default_rng(3)
    tokens, valid, _ = small.pairs(*[(int(a), int(b)) for a, b in draw.integers(1, 8, (ROWS, 2))])
    return tokens, valid, torch.from_numpy(draw.integers(0, 3, ROWS))


def paid(rows: np.ndarray, update: int, valid: list[Tensor]) -> RewardBatch:
    """Selections, rewards and behaviour log-probs of an update, functions of row and update."""
    parts = []
    for row in rows:
        draw = np.random.default_rng([update, int(row)])
        bits = [draw.random((K, 2, v.shape[1])) < 0.5 for v in valid]
        behaviour = [np.log(draw.uniform(0.2, 0.9, b.shape)) for b in bits]
        parts.append((bits, behaviour, draw.normal(size=(K, 2))))

    def stacked(arrays: list[np.ndarray], *shape: int) -> Tensor:
        dtype = np.float64 if not arrays or arrays[0].dtype != bool else bool
        made = np.stack(arrays, 1) if arrays else np.zeros((K, 0, *shape), dtype)
        return torch.from_numpy(made)

    selections, behaviours = [], []
    for slot, mask in enumerate(valid):
        shown = mask[torch.from_numpy(rows)][:, None]
        shape = (2, mask.shape[1])
        selections.append(stacked([p[0][slot] for p in parts], *shape).bool() & shown)
        bits = stacked([p[1][slot] for p in parts], *shape) * shown
        behaviours.append(bits)
    # Every third update is on-policy: no ratio is computed.
    rewards = stacked([p[2] for p in parts], 2)
    if update % 3 == 0:
        return small.rewarded(selections, rewards)
    summed = [bits.sum((-1, -2)) for bits in behaviours]
    return small.rewarded(selections, rewards, None, summed, behaviours)


def config_of(scenario: str) -> LearnerConfig:
    return LearnerConfig(
        supervised=OptimizerConfig(learning_rate=0.01, l2=1e-3, clip_norm=0.5),
        policy=OptimizerConfig(learning_rate=0.01, clip_norm=0.5),
        entropy_cost=0.05,
        weight_average=WEIGHT_AVERAGE.get(scenario),
    )


def train(group: Group, scenario: str) -> dict[str, np.ndarray]:
    """Weights after UPDATES of both learners, and `statistics` of every update, as one row."""
    config = config_of(scenario)
    classifier, policy = small.classifier(dropout=0.3), small.policy()
    if group.rank:  # the weights to learn from are those of rank 0
        small.randomise(classifier, seed=5)
        small.randomise(policy, seed=5)
    supervised = SupervisedLearner(
        classifier, config.supervised, None, config.weight_average, group
    )
    gradient = small.policy_update(
        policy, classifier.embedding, config, group, **SCENARIOS[scenario]
    )
    tokens, valid, labels = data()
    statistics = []
    for update in range(UPDATES):
        chosen = np.random.default_rng(update).permutation(ROWS)[: SIZES[update % len(SIZES)]]
        rows = shard(chosen, group.rank, group.size)
        index = torch.from_numpy(rows)
        mine = [t[index] for t in tokens], [v[index] for v in valid], labels[index]
        batch = TensorBatch(*mine, shard_of=len(chosen))
        reward = paid(rows, update, valid)
        charged = (0.3, -0.2) if update % 2 else None
        policy_scalars = small.step(gradient, batch, reward, update, price=charged)
        keys = torch.from_numpy(example_keys(0, "dropout", update, rows))
        first = [s[0] for s in reward.selections]
        stats = small.learn(supervised, batch, first, update, keys)
        numbers = [*stats.values(), *policy_scalars.values()]
        statistics += [float(number) for number in numbers]
    weights = classifier.state_dict() | {f"policy.{k}": v for k, v in policy.state_dict().items()}
    weights |= {f"learning.{k}": v for k, v in supervised.state_dict().items()}
    weights["baseline"] = gradient.average
    learnt = {name: value.numpy() for name, value in weights.items()}
    return learnt | {"statistics": np.array(statistics)}


def bad_reward(group: Group) -> str:
    """What a learner says of an update in which the last one alone was paid NaN."""
    policy, classifier = small.policy(), small.classifier()
    config = config_of("leave-one-out")
    learner = small.policy_update(
        policy, classifier.embedding, config, group, **SCENARIOS["leave-one-out"]
    )
    tokens, valid, labels = data()
    reward = paid(np.arange(ROWS), 0, valid)
    if group.rank == group.size - 1:
        reward.terms.costs["cost"][0, 0, 0] = float("nan")
    before = [p.detach().clone() for p in policy.parameters()]
    try:
        read([small.gradients(learner, TensorBatch(tokens, valid, labels), reward)])
    except NonFiniteError as error:
        same = all(map(torch.equal, before, policy.parameters()))
        return f"{error.what}, weights {'kept' if same else 'changed'}"
    return "nothing was noticed"


def fail(group: Group, mode: str) -> str:
    """Updates of one learner until another one is gone; how and when that was noticed."""
    classifier = small.classifier(dropout=0.3)
    learner = SupervisedLearner(classifier, OptimizerConfig(), None, None, group)
    tokens, valid, labels = data()
    began = time.monotonic()
    try:
        for update in range(4):
            if group.rank == group.size - 1 and update == 2:
                if mode == "hang":
                    time.sleep(60)
                os.kill(os.getpid(), signal.SIGKILL)
            began = time.monotonic()
            batch = TensorBatch(tokens, valid, labels)
            small.learn(learner, batch, None, update, small.keys(update, ROWS))
        return "nothing was noticed"
    except LearnerError as error:
        return f"{time.monotonic() - began:.2f} s, update {update}: {error}"


def run_rank(rank: int, size: int, port: int, folder: Path, mode: str) -> None:
    """One rank, in a process of its own; what it says is in FOLDER/said-RANK.

    MODE `train` saves what was learnt; `kill` and `hang` make the last rank die or stall in the
    third update.
    """
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    group = ProcessGroup(
        rank, size, address="127.0.0.1", port=port, device=cpu, timeout_s=TIMEOUT_S[mode]
    )
    if mode == "train":
        for name in SCENARIOS:
            np.savez(folder / f"{name}-{rank}.npz", **train(group, name))
        said = bad_reward(group)
    else:
        said = fail(group, mode)
    (folder / f"said-{rank}").write_text(said)
    # At once, as Ray ends learners. A tidy exit may abort: gloo's threads outlive the group, wait
    # for a lost rank, or let go of DistributedDataParallel's callback when the interpreter is gone.
    os._exit(0)
