"""Which correction for stale selections has the least error? A table and a JSON file.

python tests/benchmarks/importance.py [OUT.json]

A small RSS policy learns by real updates; pairs of its states (behaviour, target) a number of
updates apart are what an asynchronous run would meet. For each pair and correction the gradient is
estimated many times from selections of the behaviour policy (K = 4, leave-one-out) and compared
with that of the target policy's own selections:

variance   of an estimate, summed over parameters, over that of the on-policy estimate
cosine     between the mean estimate and the on-policy mean gradient
distance   of the two, over the length of the latter; noise of the means is subtracted
error      (variance + squared distance) over the on-policy variance: 1 is as good as on-policy

The second table trains at a constant lag and shows the mean reward at the end.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from learners.policy_gradient import PolicyGradientLearner, RewardBatch
from rss_rl.config import EstimatorConfig, LearnerConfig, OptimizerConfig
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops import bernoulli
from rss_rl.ops.advantages import leave_one_out
from rss_rl.ops.importance import clipped_token, truncated_sum, truncated_token
from rss_rl.ops.losses import policy_gradient_loss
from rss_rl.policies.estimators.build import build_estimator
from rss_rl.policies.estimators.protocol import LogProbEstimator
from rss_rl.policies.rss import RSSPolicy

LENGTHS, RATES, LAGS, STARTS = (12, 40), (3e-4, 4e-3), (1, 2, 4, 8, 16), (50, 150)
CORRECTIONS = ("none", "truncated-sum", "truncated-token", "clipped-token")
K, B, SIZE, WORDS = 4, 64, 16, 300
REDRAWS, PART, REFERENCE = 150, 50, 600
TRAINED, TRAINED_LAGS = 300, (4, 16)
SPARSITY = 0.3
RATIO_MAX, RATIO_CLIP = 2.0, 0.2


class Task:
    """Sentences of one length whose label follows from some words and their pairs.

    reward = log sigmoid(margin) - SPARSITY * share of bits, with
    margin = label * (sum_j h_j u_j + sum_ij h_j d_i A_ij / n) / sqrt(n).
    """

    def __init__(self, length: int) -> None:
        draw = np.random.default_rng(length)
        vectors = draw.normal(size=(WORDS, SIZE)).astype(np.float32)
        self.embedding = WordEmbedding(vectors, WORDS)
        tokens = torch.from_numpy(draw.integers(1, WORDS, (B, length)))
        self.batch = TensorBatch(
            [tokens], [torch.ones(B, length, dtype=torch.bool)], torch.zeros(B, dtype=torch.int64)
        )
        self.embedded = torch.from_numpy(vectors)[tokens]
        single = self.embedded @ torch.from_numpy(draw.normal(size=SIZE).astype(np.float32))
        mixing = torch.from_numpy(draw.normal(size=(SIZE, SIZE)).astype(np.float32)) / SIZE
        self._pairs = torch.einsum("bie,ef,bjf->bij", self.embedded, mixing, self.embedded) / length
        whole = single.sum(1) + self._pairs.sum((1, 2))
        self._sign, self._single = whole.sign(), single
        self._root = length**0.5

    def rewards(self, selection: Tensor) -> Tensor:
        """[K, B] of selections [K, B, 2, N]."""
        heads, dependents = selection[:, :, 0].float(), selection[:, :, 1].float()
        pair = torch.einsum("kbj,bij,kbi->kb", heads, self._pairs, dependents)
        margin = self._sign * ((heads * self._single).sum(-1) + pair) / self._root
        share = selection.float().mean((-1, -2))
        return torch.nn.functional.logsigmoid(margin) - SPARSITY * share


def fresh_policy() -> RSSPolicy:
    torch.manual_seed(0)
    return RSSPolicy(SIZE, SIZE, "elu", 0.5, shared=False)


def learn(task: Task, rate: float, updates: int, lag: int, correction: str) -> list[RSSPolicy]:
    """The policy before each update, trained on selections of the policy `lag` updates ago."""
    policy = fresh_policy()
    config = LearnerConfig(policy=OptimizerConfig(learning_rate=rate))
    options = {"correction": correction, "ratio_max": RATIO_MAX, "ratio_clip": RATIO_CLIP}
    estimator = build_estimator(EstimatorConfig(name="reinforce", options=options), K)
    assert isinstance(estimator, LogProbEstimator)
    learner = PolicyGradientLearner(policy, task.embedding, config, None, estimator=estimator)
    generator = torch.Generator().manual_seed(1)
    history = [copy.deepcopy(policy)]
    for number in range(updates):
        behind = min(lag, number)
        with torch.no_grad():
            uniforms = torch.rand(K, B, 2, task.embedded.shape[1], generator=generator)
            drawn = history[-1 - behind].sample(task.embedded, task.batch.valid[0], uniforms)
        seen = drawn.log_prob if estimator.bitwise else drawn.log_prob.sum((-1, -2))
        paid = RewardBatch(
            [drawn.selection],
            task.rewards(drawn.selection)[..., None],
            None,
            [seen] if behind else None,
        )
        learner.update(task.batch, paid, number=number)
        history.append(copy.deepcopy(policy))
    return history


def losses(correction: str, log_prob: Tensor, behaviour: Tensor, advantages: Tensor) -> Tensor:
    """[K, B] of each selection."""
    if correction == "none":
        return policy_gradient_loss(log_prob, advantages)
    if correction == "truncated-sum":
        return truncated_sum(log_prob, behaviour.sum((-1, -2)), advantages, RATIO_MAX).loss
    form, limit = {
        "truncated-token": (truncated_token, RATIO_MAX),
        "clipped-token": (clipped_token, RATIO_CLIP),
    }[correction]
    return form(log_prob, behaviour, advantages, limit).loss


def gradients(
    task: Task, behaviour: RSSPolicy, target: RSSPolicy, correction: str, redraws: int, seed: int
) -> Tensor:
    """Estimates of the ascent direction over the target's parameters, float64 [redraws, P]."""
    valid, parameters = task.batch.valid[0], list(target.parameters())
    logits = target.logits(task.embedded, valid)  # [B, 2, N]
    with torch.no_grad():
        theirs = behaviour.logits(task.embedded, valid)
    generator, found = torch.Generator().manual_seed(seed), []
    for _ in range(redraws // PART):
        uniforms = torch.rand(K * PART, *logits.shape, generator=generator)
        bits = bernoulli.sample(theirs, valid, uniforms)  # [K * PART, B, 2, N]
        rewards = task.rewards(bits).unflatten(0, (K, PART))
        advantages = leave_one_out(rewards).flatten(1)  # [K, PART * B]
        leaf = logits.detach().expand(PART, -1, -1, -1).clone().requires_grad_()
        many = bits.unflatten(0, (K, PART)).flatten(1, 2)  # [K, PART * B, 2, N]
        shown = valid.repeat(PART, 1)
        log_prob = bernoulli.log_prob(leaf.flatten(0, 1), many, shown)
        seen = bernoulli.log_prob(theirs, bits, valid).unflatten(0, (K, PART)).flatten(1, 2)
        loss = losses(correction, log_prob, seen, advantages).sum() / (K * B)
        (by_logit,) = torch.autograd.grad(loss, leaf)  # [PART, B, 2, N]
        by_parameter = torch.autograd.grad(
            logits, parameters, -by_logit, retain_graph=True, is_grads_batched=True
        )
        found.append(torch.cat([g.flatten(1) for g in by_parameter], 1).double())
    return torch.cat(found)


def compare(estimates: Tensor, reference: Tensor) -> dict[str, float]:
    """Variance, cosine, distance and error of estimates against on-policy ones."""
    variance, own = float(estimates.var(0).sum()), float(reference.var(0).sum())
    mean, wanted = estimates.mean(0), reference.mean(0)
    noise, other = variance / len(estimates), own / len(reference)
    length = max(float(wanted.square().sum()) - other, 1e-30) ** 0.5
    mine = max(float(mean.square().sum()) - noise, 1e-30) ** 0.5
    square = max(float((mean - wanted).square().sum()) - noise - other, 0.0)
    return {
        "variance": variance / own,
        "cosine": min(1.0, float(mean @ wanted) / (length * mine)),
        "distance": square**0.5 / length,
        "error": (variance + square) / own,
    }


def measure() -> list[dict[str, object]]:
    """One row for each length, learning rate, lag and correction: means over the starts."""
    cells: dict[tuple[int, float, int, str], list[dict[str, float]]] = defaultdict(list)
    for length in LENGTHS:
        task = Task(length)
        for rate in RATES:
            history = learn(task, rate, max(STARTS) + max(LAGS), 0, "none")
            for start in STARTS:
                for lag in LAGS:
                    behaviour, target = history[start], history[start + lag]
                    reference = gradients(task, target, target, "none", REFERENCE, 1)
                    for correction in CORRECTIONS:
                        found = gradients(task, behaviour, target, correction, REDRAWS, 2)
                        cells[length, rate, lag, correction].append(compare(found, reference))
    return [
        {"tokens": length, "rate": rate, "lag": lag, "correction": correction}
        | {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        for (length, rate, lag, correction), found in cells.items()
    ]


def train() -> list[dict[str, object]]:
    """Mean reward of sampled selections after TRAINED updates at a constant lag."""
    rows: list[dict[str, object]] = []
    for length in LENGTHS:
        task = Task(length)
        for lag, correction in [(0, "none"), *((g, c) for g in TRAINED_LAGS for c in CORRECTIONS)]:
            policy = learn(task, max(RATES), TRAINED, lag, correction)[-1]
            uniforms = torch.rand(64, B, 2, length, generator=torch.Generator().manual_seed(9))
            with torch.no_grad():
                drawn = policy.sample(task.embedded, task.batch.valid[0], uniforms).selection
            reward = float(task.rewards(drawn).mean())
            rows.append({"tokens": length, "lag": lag, "correction": correction, "reward": reward})
    return rows


def markdown(rows: list[dict[str, object]]) -> str:
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    for row in rows:
        cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    began = time.process_time()
    measured, trained = measure(), train()
    print(markdown(measured), markdown(trained), sep="\n\n")
    print(f"\n{time.process_time() - began:.0f} s of one core")
    if len(sys.argv) > 1:
        report = {"gradients": measured, "training": trained}
        Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
