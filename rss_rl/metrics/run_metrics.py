"""The metrics of a run: those that fit its task, or those that its configuration names."""

from __future__ import annotations

from dataclasses import dataclass

from rss_rl.config import MetricName, RunConfig
from rss_rl.errors import ConfigError, nearest
from rss_rl.metrics.measures import find_measure
from rss_rl.metrics.metrics import METRICS, Metric
from rss_rl.types import LabelSpec

_OWN_BEST = ("loss", "reward")
"""The evaluation's own measures that the best checkpoint can be chosen by."""


class RunMetrics:
    """The metrics of a run, in addition to the evaluation's own measures.

    Args:
        config: of the run.
        labels: of its data.
        questions, rationales: whether the data have questions with rival answers, and rationales;
            True if that is not known before they are read.

    Raises:
        ConfigError: a configured metric does not fit the data or the run.
    """

    def __init__(
        self,
        config: RunConfig,
        labels: LabelSpec,
        *,
        questions: bool = True,
        rationales: bool = True,
    ) -> None:
        there = {"questions": questions, "rationales": rationales, "predictions": config.predicts}
        asked, self._labels = config.evaluation.metrics, labels
        for name in asked:
            _check_fits(name, labels, config)
        self._kinds = [
            kind
            for name, kind in METRICS.items()
            if (name in asked if asked else labels.kind in kind.labels)
            and all(there[needed] for needed in kind.needs)
        ]
        fresh = list(zip(self._kinds, self.begin(), strict=True))
        self.names = tuple(name for _, metric in fresh for name in metric.names)
        self.main = next((metric.names[0] for kind, metric in fresh if kind.main), "reward")

    def begin(self) -> list[Metric]:
        """New metrics for a pass."""
        return [kind.build(self._labels) for kind in self._kinds]


def _check_fits(name: MetricName, labels: LabelSpec, config: RunConfig) -> None:
    """Refuse a configured metric that does not fit the data or the run."""
    kind = METRICS[name]
    if labels.kind not in kind.labels:
        raise ConfigError(
            f"'{name}' measures labels of kind {' or '.join(kind.labels)}, but this data set's are"
            f" {labels.kind}",
            where="evaluation.metrics",
            remedy="Leave it out",
        )
    if "predictions" in kind.needs and not config.predicts:
        raise ConfigError(
            f"'{name}' needs predictions, but the run trains no classifier",
            where="evaluation.metrics",
            remedy="Leave it out, or add a phase with supervised: true",
        )


@dataclass(frozen=True)
class BestMetric:
    """The metric that the best checkpoint is chosen by."""

    name: str
    lower_is_better: bool


def best_metric(
    config: RunConfig, labels: LabelSpec, *, questions: bool, rationales: bool
) -> BestMetric:
    """The metric that `evaluation.best_metric` selects on the dev split.

    Args:
        questions, rationales: of the dev split, see `RunMetrics`.

    Raises:
        ConfigError: dev has no such metric; names the nearest one.
    """
    metrics = RunMetrics(config, labels, questions=questions, rationales=rationales)
    name = config.evaluation.best_metric
    if name == "auto":
        name = metrics.main
    own = [known for known in _OWN_BEST if known != "loss" or config.predicts]
    known = sorted({*metrics.names, *own})
    if name not in known:
        raise ConfigError(
            f"{_reason(config, labels, name)}, so there is no '{name:.100}'"
            f"{nearest(name[:100], known)}",
            where="evaluation.best_metric",
            remedy=f"Give auto or one of {', '.join(known)}",
        )
    return BestMetric(name, find_measure(name).lower_is_better)


def _reason(config: RunConfig, labels: LabelSpec, name: str) -> str:
    """Why dev has no metric of this name."""
    if not config.predicts:
        return "the run trains no classifier"
    if name in RunMetrics(config, labels, rationales=False).names:
        return "questions of the dev split have no rival answers"
    if name in RunMetrics(config, labels, questions=False).names:
        return "the dev split has no rationales"
    if config.evaluation.metrics:
        return f"evaluation.metrics is {', '.join(config.evaluation.metrics)}"
    return f"this data set's labels are {labels.kind}"
