"""Which correction for stale selections has the least error? A table and a JSON file.

python tests/benchmarks/importance.py [OUT.json]

A small RSS policy learns by real updates; pairs of its states (behaviour, target) a number of
updates apart are what an asynchronous run would meet. Examples are of one sentence or two, whose
selections decide together on the reward. For each pair and correction the gradient is estimated
many times from selections of the behaviour policy (K = 4, leave-one-out) and compared with that of
the target policy's own selections:

variance   of an estimate, summed over parameters, over that of the on-policy estimate
cosine     between the mean estimate and the on-policy mean gradient
distance   of the two, over the length of the latter; noise of the means is subtracted
error      (variance + squared distance) over the on-policy variance: 1 is as good as on-policy

truncated-slot weighs the selection of a sentence by its own ratio alone, truncated, as if the other
sentence did not matter; no configuration offers it.

The second table trains at a constant lag and shows the mean reward at the end.
"""

from __future__ import annotations

import copy
import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rss_rl.config import EstimatorConfig, LearnerConfig, OptimizerConfig
from rss_rl.learners.policy_gradient import PolicyGradientLearner, RewardBatch
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops import bernoulli
from rss_rl.ops.advantages import leave_one_out
from rss_rl.ops.importance import clipped_token, truncated_sum, truncated_token
from rss_rl.ops.losses import policy_gradient_loss
from rss_rl.policies.estimators.build import build_estimator
from rss_rl.policies.estimators.protocol import LogProbEstimator
from rss_rl.policies.protocol import PolicySetup, Sampled
from rss_rl.policies.rss import RSSOptions, RSSPolicy

SIZES = ((1, 12), (1, 40), (2, 20))
"""Sentences of an example, and tokens of each."""
RATES, LAGS, STARTS = (3e-4, 4e-3), (1, 2, 4, 8, 16), (50, 150)
CORRECTIONS = ("none", "truncated-sum", "truncated-token", "clipped-token")
K, B, SIZE, WORDS = 4, 64, 16, 300
REDRAWS, PART, REFERENCE = 150, 50, 600
TRAINED, TRAINED_LAGS = 300, (4, 16)
SPARSITY = 0.3
RATIO_MAX, RATIO_CLIP = 2.0, 0.2


class Task:
    """Examples of sentences of one length whose label follows from some words and their pairs.

    reward of sentence s = log sigmoid(margin) - SPARSITY * share of its bits, with
    margin = label * (sum_sj h_sj u_sj + sum_stij h_sj d_ti A_stij / n) / sqrt(n): of two sentences
    pairs of words from both count, too.
    """

    def __init__(self, sentences: int, length: int) -> None:
        draw = np.random.default_rng(length)
        vectors = draw.normal(size=(WORDS, SIZE)).astype(np.float32)
        self.embedding = WordEmbedding(vectors, WORDS)
        tokens = [torch.from_numpy(draw.integers(1, WORDS, (B, length))) for _ in range(sentences)]
        valid = [torch.ones(B, length, dtype=torch.bool)] * sentences
        self.batch = TensorBatch(tokens, valid, torch.zeros(B, dtype=torch.int64))
        self.embedded = [torch.from_numpy(vectors)[words] for words in tokens]
        all_words = torch.cat(self.embedded, 1)  # [B, S * N, E]
        self._single = all_words @ torch.from_numpy(draw.normal(size=SIZE).astype(np.float32))
        mixing = torch.from_numpy(draw.normal(size=(SIZE, SIZE)).astype(np.float32)) / SIZE
        count = sentences * length
        self._pairs = torch.einsum("bie,ef,bjf->bij", all_words, mixing, all_words) / count
        whole = self._single.sum(1) + self._pairs.sum((1, 2))
        self._sign, self._root = whole.sign(), count**0.5

    def rewards(self, selections: Sequence[Tensor]) -> Tensor:
        """[K, B, S] of selections S x [K, B, 2, N]."""
        chosen = torch.cat(list(selections), -1).float()
        heads, dependents = chosen[:, :, 0], chosen[:, :, 1]
        pair = torch.einsum("kbj,bij,kbi->kb", heads, self._pairs, dependents)
        margin = self._sign * ((heads * self._single).sum(-1) + pair) / self._root
        likelihood = torch.nn.functional.logsigmoid(margin)
        shares = [bits.float().mean((-1, -2)) for bits in selections]
        return torch.stack([likelihood - SPARSITY * share for share in shares], -1)


def fresh_policy() -> RSSPolicy:
    torch.manual_seed(0)
    return RSSPolicy(PolicySetup(SIZE, "elu"), RSSOptions(hidden=SIZE))


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
            drawn = sample(history[-1 - behind], task, K, generator)
        bits = [one.selection for one in drawn]
        seen = [one.log_prob if estimator.bitwise else one.log_prob.sum((-1, -2)) for one in drawn]
        paid = RewardBatch(bits, task.rewards(bits), None, seen if behind else None)
        learner.update(task.batch, paid, number=number)
        history.append(copy.deepcopy(policy))
    return history


def sample(
    policy: RSSPolicy, task: Task, samples: int, generator: torch.Generator
) -> list[Sampled]:
    """Of each sentence."""
    return [
        policy.sample(
            vectors, valid, torch.rand(samples, B, 2, vectors.shape[1], generator=generator)
        )
        for vectors, valid in zip(task.embedded, task.batch.valid, strict=True)
    ]


def losses(
    correction: str, log_prob: list[Tensor], behaviour: list[Tensor], advantages: Tensor
) -> list[Tensor]:
    """S x [K, B] of each selection."""
    if correction == "none":
        parts = zip(log_prob, advantages.unbind(-1), strict=True)
        return [policy_gradient_loss(part, paid) for part, paid in parts]
    summed = [part.sum((-1, -2)) for part in behaviour]
    if correction == "truncated-sum":
        return truncated_sum(log_prob, summed, advantages, RATIO_MAX).losses
    if correction == "truncated-slot":
        return [
            truncated_sum([now], [before], advantages[..., slot : slot + 1], RATIO_MAX).losses[0]
            for slot, (now, before) in enumerate(zip(log_prob, summed, strict=True))
        ]
    form, limit = {
        "truncated-token": (truncated_token, RATIO_MAX),
        "clipped-token": (clipped_token, RATIO_CLIP),
    }[correction]
    return form(log_prob, behaviour, advantages, limit).losses


def gradients(
    task: Task, behaviour: RSSPolicy, target: RSSPolicy, correction: str, redraws: int, seed: int
) -> Tensor:
    """Estimates of the ascent direction over the target's parameters, float64 [redraws, P]."""
    valid, parameters = task.batch.valid, list(target.parameters())
    slots = list(zip(task.embedded, valid, strict=True))
    logits = [target.logits(*slot) for slot in slots]  # S x [B, 2, N]
    with torch.no_grad():
        theirs = [behaviour.logits(*slot) for slot in slots]
    generator, found = torch.Generator().manual_seed(seed), []
    for _ in range(redraws // PART):
        bits, leaves, log_prob, seen = [], [], [], []
        for now, before, real in zip(logits, theirs, valid, strict=True):
            uniforms = torch.rand(K * PART, *now.shape, generator=generator)
            drawn = bernoulli.sample(before, real, uniforms)  # [K * PART, B, 2, N]
            leaf = now.detach().expand(PART, -1, -1, -1).clone().requires_grad_()
            shown = real.repeat(PART, 1)
            bits.append(drawn)
            leaves.append(leaf)
            log_prob.append(bernoulli.log_prob(leaf.flatten(0, 1), _many(drawn), shown))
            seen.append(_many(bernoulli.log_prob(before, drawn, real)))
        rewards = task.rewards(bits).unflatten(0, (K, PART))
        advantages = leave_one_out(rewards).flatten(1, 2)  # [K, PART * B, S]
        loss = torch.stack(losses(correction, log_prob, seen, advantages)).sum() / (K * B)
        by_logit = torch.autograd.grad(loss, leaves)  # S x [PART, B, 2, N]
        by_parameter = torch.autograd.grad(
            logits,
            parameters,
            [-part for part in by_logit],
            retain_graph=True,
            is_grads_batched=True,
        )
        found.append(torch.cat([g.flatten(1) for g in by_parameter], 1).double())
    return torch.cat(found)


def _many(drawn: Tensor) -> Tensor:
    """[K * PART, B, ...] as [K, PART * B, ...]."""
    return drawn.unflatten(0, (K, PART)).flatten(1, 2)


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


def compared(sentences: int) -> tuple[str, ...]:
    return CORRECTIONS if sentences == 1 else (*CORRECTIONS, "truncated-slot")


def measure() -> list[dict[str, object]]:
    """One row for each size, learning rate, lag and correction: means over the starts."""
    rows: list[dict[str, object]] = []
    for (sentences, length), rate in itertools.product(SIZES, RATES):
        task = Task(sentences, length)
        history = learn(task, rate, max(STARTS) + max(LAGS), 0, "none")
        cells: dict[tuple[int, str], list[dict[str, float]]] = defaultdict(list)
        for start, lag in itertools.product(STARTS, LAGS):
            behaviour, target = history[start], history[start + lag]
            reference = gradients(task, target, target, "none", REFERENCE, 1)
            for correction in compared(sentences):
                found = gradients(task, behaviour, target, correction, REDRAWS, 2)
                cells[lag, correction].append(compare(found, reference))
        for (lag, correction), found in sorted(cells.items()):
            row = {"sentences": sentences, "tokens": length, "rate": rate, "lag": lag}
            means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
            rows.append(row | {"correction": correction} | means)
    return rows


def train() -> list[dict[str, object]]:
    """Mean reward of sampled selections after TRAINED updates at a constant lag."""
    rows: list[dict[str, object]] = []
    for sentences, length in SIZES:
        task = Task(sentences, length)
        for lag, correction in [(0, "none"), *itertools.product(TRAINED_LAGS, CORRECTIONS)]:
            policy = learn(task, max(RATES), TRAINED, lag, correction)[-1]
            with torch.no_grad():
                drawn = sample(policy, task, 64, torch.Generator().manual_seed(9))
            reward = float(task.rewards([one.selection for one in drawn]).mean())
            row = {"sentences": sentences, "tokens": length, "lag": lag}
            rows.append(row | {"correction": correction, "reward": reward})
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
