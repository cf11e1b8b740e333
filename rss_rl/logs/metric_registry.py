"""All metrics that a run can write: tag, unit, meaning, and how values are aggregated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Literal

from rss_rl.errors import nearest
from rss_rl.metrics.measures import all_measures

Reducer = Literal["mean", "sum", "last", "max"]
Kind = Literal["scalar", "histogram", "text", "image"]


@dataclass(frozen=True)
class Metric:
    """One metric, or several whose tags differ in a part.

    tag      the name in TensorBoard and Parquet; `{a,b}` stands for a and for b, and `<name>` at
             the end for any identifier: the name of a component's term or measure
    unit     of the value
    meaning  its description or formula
    reducer  how the values of several updates are aggregated
    kind     scalar (TensorBoard and Parquet), histogram, text or image (TensorBoard)
    """

    tag: str
    unit: str
    meaning: str
    reducer: Reducer = "mean"
    kind: Kind = "scalar"

    def tags(self) -> list[str]:
        """All tags.

        >>> Metric("dev/{all,sampled}/loss", "nats", "").tags()
        ['dev/all/loss', 'dev/sampled/loss']
        """
        parts = re.split(r"\{([^}]*)\}", self.tag)  # literal, choices, literal, ...
        choices = [part.split(",") if n % 2 else [part] for n, part in enumerate(parts)]
        return ["".join(chosen) for chosen in product(*choices)]


def known_metric(tag: str) -> Metric | None:
    """The metric of `tag`, by its exact name or as `<name>` of its group."""
    group, _, name = tag.rpartition("/")
    return METRICS.get(tag) or (METRICS.get(f"{group}/<name>") if name.isidentifier() else None)


def find_metric(tag: str, kind: Kind) -> Metric:
    """The metric of `tag`.

    Raises:
        ValueError: none of this kind; names the nearest known one.
    """
    metric = known_metric(tag)
    if metric is None or metric.kind != kind:
        known = [name for name, other in METRICS.items() if other.kind == kind]
        raise ValueError(f"no registered {kind} metric {tag!r}{nearest(tag, known)}")
    return metric


def metrics_markdown() -> str:
    """The table of all metrics in docs/metrics.md."""
    lines = ["| tag | unit | what it is | over updates |", "|---|---|---|---|"]
    for metric in dict.fromkeys(METRICS.values()):
        how = metric.reducer if metric.kind == "scalar" else metric.kind
        lines.append(f"| `{metric.tag}` | {metric.unit} | {metric.meaning} | {how} |")
    return "\n".join(lines)


_DEV = "dev/{all,thresholded}/"
_SHARE = "share of real tokens"

_ALL = (
    Metric(
        "phase/index", "number", "number of the phase that the update belongs to, from 0", "last"
    ),
    Metric("train/loss", "nats, or score²", "supervised loss of the classifier, without L2"),
    Metric(
        "train/accuracy", "share", "correct predictions among the batch's examples, with dropout"
    ),
    Metric("train/gradient_norm", "-", "L2 norm of the classifier's gradient before clipping"),
    Metric(
        "policy/loss",
        "nats",
        "minus mean of advantage × log-prob, importance-corrected, without the entropy cost",
    ),
    Metric("policy/entropy", "nats", "mean entropy of a selection bit"),
    Metric("policy/gradient_norm", "-", "L2 norm of the policy's gradient before clipping"),
    Metric("policy/advantage_std", "nats", "standard deviation of reward minus baseline"),
    Metric(
        "policy/ratio_mean",
        "-",
        "importance ratio target / behaviour policy of a bit (of a selection: truncated-sum)",
    ),
    Metric("policy/ratio_max", "-", "largest importance ratio, before truncation", "max"),
    Metric("policy/ratio_clipped", "share", "importance ratios that are truncated or clipped"),
    Metric(
        "policy/effective_sample_share",
        "share",
        "(Σw)² / (n Σw²) of the ratios w after truncation; clipped ones count as 0",
    ),
    Metric(
        "policy/version",
        "number",
        "version of the snapshot that the rollout was sampled with",
        "last",
    ),
    Metric("policy/lag_min", "versions", "smallest policy lag of an update's rollouts"),
    Metric(
        "policy/lag",
        "versions",
        "target minus behaviour version, mean of an update's rollouts",
    ),
    Metric("policy/lag_max", "versions", "largest policy lag of an update's rollouts", "max"),
    Metric("reward/total", "nats", "score minus all costs, mean over selections"),
    Metric(
        "reward/log_likelihood",
        "nats",
        "score of the default reward model: log p(label) under the selection, without dropout"
        " (scores: minus the loss)",
    ),
    Metric(
        "reward/complement",
        "nats",
        "-w p(label given the unselected tokens), the second term of the default reward model; if"
        " w is not 0",
    ),
    Metric("reward/<name>", "-", "a term of another reward model, mean over selections"),
    Metric("reward/sparsity_cost", "nats", "λ × penalty, summed over the sentences of an example"),
    Metric(
        "reward/coherence_cost",
        "nats",
        "coherence cost × changes / n, summed over the sentences; if it is not 0",
    ),
    Metric(
        "reward/lambda",
        "nats",
        "mean of constraint/multiplier over both roles; not part of the reward",
        "last",
    ),
    Metric("reward/lambda_{heads,dependents}", "nats", "equal to constraint/multiplier", "last"),
    Metric(
        "constraint/multiplier_{heads,dependents}",
        "nats",
        "λ of a role, charged on the policy's probabilities so that the target share is kept",
        "last",
    ),
    Metric(
        "constraint/violation",
        "share",
        "share of the batch kept by thresholding, minus the target share",
        "last",
    ),
    Metric("selection/kept", _SHARE, "heads or dependents in the sampled selections"),
    Metric(
        "selection/thresholded_kept",
        _SHARE,
        "heads or dependents in the thresholded selections of the batch (target share)",
    ),
    Metric(
        "selection/margin_{heads,dependents}",
        "standard deviations",
        "how far a role's logits are too high (+) or too low (-) for the target share; in logits"
        " beyond one standard deviation, or if that is below 1",
        "last",
    ),
    Metric(
        "selection/share_error",
        "share",
        "running average of thresholded_kept minus the target share",
        "last",
    ),
    Metric("selection/heads_kept", _SHARE, "heads in the sampled selections"),
    Metric("selection/dependents_kept", _SHARE, "dependents in the sampled selections"),
    Metric(
        "selection/probability_{head,dependent}",
        "-",
        "probability of each dev token",
        "last",
        "histogram",
    ),
    Metric("selection/examples", "-", "dev sentences with their selection", "last", "text"),
    Metric(
        "selection/attention",
        "-",
        "heat map of a dev sentence, heads × dependents, mean over features; at most every 20 s",
        "last",
        "image",
    ),
    Metric("throughput/examples_per_second", "1/s", "examples of an update / its wall time"),
    Metric(
        "time/update_s",
        "s",
        "wall time of an update; the sum over updates is the training time without evaluations",
        "sum",
    ),
    Metric("time/sample_s", "s", "time spent waiting for the samplers"),
    Metric("time/learn_s", "s", "losses, gradients and optimiser steps of an update"),
    Metric("time/evaluate_s", "s", "one pass over dev", "sum"),
    Metric("publish/duration_ms", "ms", "time to make a snapshot of the weights and publish it"),
    Metric("publish/bytes", "bytes", "size of a snapshot", "last"),
    Metric(
        "pipeline/in_flight",
        "shards",
        "shards submitted and not yet returned when an update begins",
    ),
    Metric(
        "learner/idle_share", "share", "share of an update's wall time spent waiting for rollouts"
    ),
    Metric(
        "sampler/idle_share",
        "share",
        "share of the samplers' wall time spent idle, over the last 32 updates",
        "last",
    ),
    Metric("sampler/busy_s", "s", "total time that samplers worked during an update", "sum"),
    Metric("sampler/alive", "number", "samplers that are ready for jobs", "last"),
    Metric("object_store/bytes", "bytes", "bytes in use in the cluster's object stores", "last"),
    Metric(
        "sampler/restarts",
        "number",
        "samplers replaced, since the run was last started",
        "last",
    ),
    Metric("storage/failures", "number", "failed uploads to the storage so far", "last"),
    Metric(
        "storage/lag_checkpoints",
        "number",
        "checkpoints that the storage does not have yet",
        "last",
    ),
    Metric(
        "storage/upload_s", "s", "duration of the last successful upload to the storage", "last"
    ),
    Metric("metrics/non_finite", "number", "NaN or infinite values left out at this step", "sum"),
    *(Metric(_DEV + m.name, m.unit, m.meaning) for m in all_measures().values()),
)
METRICS = {tag: metric for metric in _ALL for tag in metric.tags()}
"""By tag, in the order of the documentation."""
