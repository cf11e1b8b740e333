"""The metrics of a run: those of its task, and those in its configuration."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rss_rl.components import Component, Measure, component_names, find_component
from rss_rl.config import RunConfig
from rss_rl.errors import ConfigError, nearest
from rss_rl.metrics.measures import OWN
from rss_rl.metrics.protocol import Metric, MetricSetup

_OWN = frozenset(measure.name for measure in OWN)
_OWN_BEST = ("loss", "reward")
"""Those that the best checkpoint can be chosen by."""
_LABELS = frozenset({"classes", "score", "sentence", "candidate"})

_log = logging.getLogger("rss_rl.metrics")


@functools.cache
def _standard() -> tuple[Component, ...]:
    """Installed components that are reported by default."""
    found = []
    for name in component_names("metric"):
        try:
            component = find_component("metric", name)
        except ConfigError as error:  # it was not requested, so it must not end a run
            _log.warning("%s", error)
            continue
        if component.can("standard"):
            found.append(component)
    return tuple(found)


def _fits(capabilities: frozenset[str], setup: MetricSetup) -> bool:
    kinds = capabilities & _LABELS
    return not kinds or setup.labels.kind in kinds


def _lower(measures: Sequence[Measure]) -> frozenset[str]:
    return frozenset(measure.name for measure in measures if measure.lower_is_better)


@dataclass(frozen=True)
class _RunMetric:
    name: str
    capabilities: frozenset[str]
    lower_is_better: frozenset[str]
    build: Callable[[], Metric]


class RunMetrics:
    """The metrics of a run, in addition to the evaluation's own measures.

    Args:
        config: of the run.
        setup: of its data.
        questions, rationales: whether the data have questions with rival answers, and rationales;
            True if that is not known before they are read.

    Raises:
        ConfigError: a configured metric does not fit the data, or two metrics report one name.
    """

    def __init__(
        self,
        config: RunConfig,
        setup: MetricSetup,
        *,
        questions: bool = True,
        rationales: bool = True,
    ) -> None:
        there = {"questions": questions, "rationales": rationales, "predictions": config.predicts}
        self._missing = frozenset(name for name, known in there.items() if not known)
        self._chosen = self._find(config, setup)
        fresh = self.begin()
        lower = (chosen.lower_is_better for chosen in self._chosen)
        self.lower_is_better = _lower(OWN).union(*lower)
        self.names: tuple[str, ...] = ()
        for chosen, metric in zip(self._chosen, fresh, strict=True):
            if twice := sorted({*self.names, *_OWN} & set(metric.names)):
                raise ConfigError(
                    f"'{chosen.name}' reports '{twice[0]}', which another metric does too",
                    where="evaluation.metrics",
                    remedy="Leave out one of the two",
                )
            self.names += tuple(metric.names)
        leading = (
            metric.names[0]
            for chosen, metric in zip(self._chosen, fresh, strict=True)
            if "main" in chosen.capabilities
        )
        self.main: str = next(leading, "reward")

    def _find(self, config: RunConfig, setup: MetricSetup) -> list[_RunMetric]:
        asked = {choice.name: choice for choice in config.evaluation.metrics}
        found = [
            _RunMetric(
                component.name,
                component.all_capabilities(),
                _lower(component.measures),
                functools.partial(component.build, setup, component.parse({})),
            )
            for component in _standard()
            if component.name not in asked and _fits(component.all_capabilities(), setup)
        ]
        for choice in asked.values():
            component, options = choice.component, choice.component.parse(choice.options)
            capabilities = component.all_capabilities(options)
            _check_fits(choice.name, capabilities, setup, config)
            build = functools.partial(component.build, setup, options)
            found.append(_RunMetric(choice.name, capabilities, _lower(component.measures), build))
        return [chosen for chosen in found if not chosen.capabilities & self._missing]

    def begin(self) -> list[Metric]:
        """New metrics for a pass."""
        return [chosen.build() for chosen in self._chosen]


def _check_fits(
    name: str, capabilities: frozenset[str], setup: MetricSetup, config: RunConfig
) -> None:
    """Refuse a configured metric that does not fit the data or the run."""
    if not _fits(capabilities, setup):
        kinds = " or ".join(sorted(capabilities & _LABELS))
        raise ConfigError(
            f"'{name}' measures labels of kind {kinds}, but this data set's are"
            f" {setup.labels.kind}",
            where="evaluation.metrics",
            remedy="Leave it out",
        )
    if "predictions" in capabilities and not config.predicts:
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
    config: RunConfig, setup: MetricSetup, *, questions: bool, rationales: bool
) -> BestMetric:
    """The metric that `evaluation.best_metric` selects on the dev split.

    Args:
        questions, rationales: of the dev split, see `RunMetrics`.

    Raises:
        ConfigError: dev has no such metric; names the nearest one.
    """
    metrics = RunMetrics(config, setup, questions=questions, rationales=rationales)
    name = config.evaluation.best_metric
    if name == "auto":
        name = metrics.main
    own = [known for known in _OWN_BEST if known != "loss" or config.predicts]
    known = sorted({*metrics.names, *own})
    if name not in known:
        raise ConfigError(
            f"{_reason(config, setup, name)}, so there is no '{name:.100}'"
            f"{nearest(name[:100], known)}",
            where="evaluation.best_metric",
            remedy=f"Give auto or one of {', '.join(known)}",
        )
    return BestMetric(name, name in metrics.lower_is_better)


def _reason(config: RunConfig, setup: MetricSetup, name: str) -> str:
    """Why dev has no metric of this name."""
    if not config.predicts:
        return "the run trains no classifier"
    if name in RunMetrics(config, setup, rationales=False).names:
        return "questions of the dev split have no rival answers"
    if name in RunMetrics(config, setup, questions=False).names:
        return "the dev split has no rationales"
    return f"this data set's labels are {setup.labels.kind}"
