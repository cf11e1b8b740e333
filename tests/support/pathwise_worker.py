"""A pathwise learner on synthetic pairs, alone or as one rank of several.

python pathwise_worker.py RANK SIZE PORT OUT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import small
import torch
from group_worker import leave

from rss_rl.config import parse_config
from rss_rl.learners.group import Group, ProcessGroup, shard
from rss_rl.learners.pathwise import PathwiseLearner
from rss_rl.models.inputs import TensorBatch
from rss_rl.policies.build import build_policy
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES

SIZES, K = (5, 4, 1), 2
"""Examples of the updates: with two learners one shard of the last is empty."""
TREE: dict[str, Any] = {
    "data": "none",
    "policy": {"name": "hardkuma", "options": {"hidden": small.HIDDEN}},
    "learner": {"entropy_cost": 0.1, "policy": {"learning_rate": 0.05}},
    "reward": {"sparsity_cost": 0.2, "coherence_cost": 0.1},
    "phases": [{"name": "frozen", "policy": True, "steps": 3}],
}


def learn(group: Group) -> tuple[dict[str, np.ndarray[Any, Any]], list[list[float]]]:
    """Weights at the end and what each update reported."""
    config = parse_config(TREE, where="worker")
    classifier = small.classifier(double=True)
    policy = build_policy(config.policy, small.EMBEDDING, "elu")
    small.randomise(policy)
    learner = PathwiseLearner(policy.double(), classifier, config, None, group)
    draw, reports = np.random.default_rng(0), []
    for number, size in enumerate(SIZES):
        pairs = [(int(a), int(b)) for a, b in draw.integers(1, 7, (size, 2))]
        tokens, valid, _ = small.pairs(*pairs, seed=number)
        rows = shard(np.arange(size), group.rank, group.size)
        mine = torch.from_numpy(rows)
        uniforms = [
            torch.from_numpy(
                keyed_uniforms(stream_key(0, number, s), rows, K, ROLES, v.shape[1])
            ).double()
            for s, v in enumerate(valid)
        ]
        labels = torch.arange(size) % 3
        batch = TensorBatch([t[mine] for t in tokens], [v[mine] for v in valid], labels[mine])
        reports.append(list(learner.update(batch, uniforms, number=number)))
    return {k: v.detach().numpy() for k, v in policy.state_dict().items()}, reports


if __name__ == "__main__":
    rank, size, port = map(int, sys.argv[1:4])
    joined = ProcessGroup(
        rank,
        size,
        address="127.0.0.1",
        port=port,
        device=torch.device("cpu"),
        timeout_s=60,
    )
    weights, reports = learn(joined)
    np.savez(Path(sys.argv[4]) / f"{rank}.npz", reports=np.array(reports), **weights)
    leave()
