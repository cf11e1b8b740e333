"""All metrics that a run can write: tag, unit, meaning, and how values are aggregated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Literal

from rss_rl.errors import nearest
from rss_rl.metrics.measures import all_measures

Reducer = Literal["mean", "sum", "last", "max"]
Kind = Literal["scalar", "histogram", "text"]


@dataclass(frozen=True)
class Metric:
    """One metric, or several whose tags differ in a part.

    tag      the name in TensorBoard and Parquet; `{a,b}` stands for a and for b, and `<name>` at
             the end for any identifier: the name of a component's term or measure
    unit     of the value
    meaning  its description or formula
    reducer  how the values of several updates are aggregated
    kind     scalar (TensorBoard and Parquet), histogram or text (TensorBoard)
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


def find_metric(tag: str, kind: Kind) -> Metric:
    """The metric of `tag`, by its exact name or as `<name>` of its group.

    Raises:
        ValueError: none of this kind; names the nearest known one.
    """
    group, _, name = tag.rpartition("/")
    metric = METRICS.get(tag) or (METRICS.get(f"{group}/<name>") if name.isidentifier() else None)
    if metric is None or metric.kind != kind:
        known = [name for name, other in METRICS.items() if other.kind == kind]
        raise ValueError(f"no registered {kind} metric {tag!r}{nearest(tag, known)}")
    return metric


_DEV = "dev/{all,thresholded}/"
_SHARE = "share of real tokens"

_ALL = (
    Metric("phase/index", "number", "number of the update's phase, from 0", "last"),
    Metric("train/loss", "nats, or score²", "supervised loss of the classifier, without L2"),
    Metric("train/accuracy", "share", "correct predictions in the batch, with dropout"),
    Metric("train/gradient_norm", "-", "L2 norm of the classifier's gradient before clipping"),
    Metric("policy/loss", "nats", "minus mean of advantage × log-prob, importance-corrected"),
    Metric("policy/entropy", "nats", "mean entropy of a selection bit"),
    Metric("policy/gradient_norm", "-", "L2 norm of the policy's gradient before clipping"),
    Metric("policy/advantage_std", "nats", "standard deviation of reward minus baseline"),
    Metric("policy/ratio_mean", "-", "importance ratio of a bit (truncated-sum: of a selection)"),
    Metric("policy/ratio_max", "-", "largest importance ratio, before truncation", "max"),
    Metric("policy/ratio_clipped", "share", "importance ratios that are truncated or clipped"),
    Metric("policy/effective_sample_share", "share", "(Σw)² / (n Σw²) of truncated ratios w"),
    Metric("policy/version", "number", "snapshot that the rollout was sampled with", "last"),
    Metric("policy/lag_min", "versions", "smallest policy lag of an update's rollouts"),
    Metric("policy/lag", "versions", "target minus behaviour version, mean of the rollouts"),
    Metric("policy/lag_max", "versions", "largest policy lag of an update's rollouts", "max"),
    Metric("reward/total", "nats", "score minus all costs, mean over selections"),
    Metric("reward/log_likelihood", "nats", "log p(label) under the selection (minus the loss)"),
    Metric("reward/complement", "nats", "-w p(label given the unselected tokens), if w is not 0"),
    Metric("reward/<name>", "-", "a term of another reward model, mean over selections"),
    Metric("reward/sparsity_cost", "nats", "λ × penalty, summed over an example's sentences"),
    Metric("reward/coherence_cost", "nats", "coherence cost × changes / n, if it is not 0"),
    Metric("reward/lambda", "nats", "mean λ of both roles; not part of the reward", "last"),
    Metric("reward/lambda_{heads,dependents}", "nats", "as constraint/multiplier", "last"),
    Metric(
        "constraint/multiplier_{heads,dependents}",
        "nats",
        "λ of a role, charged on the policy's probabilities so that the target share is kept",
        "last",
    ),
    Metric(
        "constraint/violation",
        "share",
        "share kept by thresholding, minus the target of training",
        "last",
    ),
    Metric("selection/kept", _SHARE, "heads or dependents in the sampled selections"),
    Metric("selection/thresholded_kept", _SHARE, "as kept, by thresholding (target share)"),
    Metric(
        "selection/margin_{heads,dependents}",
        "standard deviations",
        "how far logits are too high (+) or too low (-) for the target share; in logits beyond one"
        " standard deviation, or if that is below 1",
        "last",
    ),
    Metric("selection/share_error", "share", "running average of constraint/violation", "last"),
    Metric("selection/heads_kept", _SHARE, "heads in the sampled selections"),
    Metric("selection/dependents_kept", _SHARE, "dependents in the sampled selections"),
    Metric("selection/probability_{head,dependent}", "-", "of dev tokens", "last", "histogram"),
    Metric("selection/examples", "-", "dev sentences with their selection", "last", "text"),
    Metric("throughput/examples_per_second", "1/s", "examples of an update / its wall time"),
    Metric("time/update_s", "s", "wall time of an update, without evaluations", "sum"),
    Metric("time/sample_s", "s", "time spent waiting for the samplers"),
    Metric("time/learn_s", "s", "losses, gradients and optimiser steps of an update"),
    Metric("time/evaluate_s", "s", "one pass over dev", "sum"),
    Metric("publish/duration_ms", "ms", "time to make and publish a snapshot of the weights"),
    Metric("publish/bytes", "bytes", "size of a snapshot", "last"),
    Metric("pipeline/in_flight", "shards", "asked for and not returned when an update begins"),
    Metric("learner/idle_share", "share", "of an update's wall time, waiting for rollouts"),
    Metric("sampler/idle_share", "share", "of the samplers' time, last 32 updates", "last"),
    Metric("sampler/busy_s", "s", "total time that samplers worked during an update", "sum"),
    Metric("sampler/alive", "number", "samplers that are ready for jobs", "last"),
    Metric("sampler/restarts", "number", "samplers replaced since the last start", "last"),
    Metric("storage/failures", "number", "failed uploads to the storage so far", "last"),
    Metric("storage/lag_checkpoints", "number", "checkpoints not yet in the storage", "last"),
    Metric("storage/upload_s", "s", "duration of the last successful upload", "last"),
    Metric("metrics/non_finite", "number", "NaN or infinite values left out here", "sum"),
    *(Metric(_DEV + m.name, m.unit, m.meaning) for m in all_measures().values()),
)
METRICS = {tag: metric for metric in _ALL for tag in metric.tags()}
"""By tag, in the order of the documentation."""
