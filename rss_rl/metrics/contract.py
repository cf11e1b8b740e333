"""Contract tests for metrics; see `rss_rl.testing`.

Legend: B examples, C classes or other choices.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rss_rl.components import Component
from rss_rl.errors import ComponentError
from rss_rl.metrics.protocol import Metric, MetricSetup, Scored
from rss_rl.promises import Promises
from rss_rl.random_batches import cut_batch, random_batch, random_selections
from rss_rl.types import Array, LabelSpec

_CLASSES = LabelSpec("classes", ("no", "yes"))
_TOLERANCE = 1e-6


def check_metric(
    metric: Component | Callable[[], Metric],
    *,
    labels: LabelSpec = _CLASSES,
    sentences: int = 1,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Check all that evaluation relies on: finite numbers under the declared names, independent of
    order and batching of the examples; independent passes, also without an example; arguments that
    are not modified; pickling.

    Args:
        metric: a component of kind `metric`, or a function without arguments that returns a metric.
        labels, sentences: of a task that it supports.
        options: of the component.

    Raises:
        ComponentError: the first promise that it breaks, with a remedy.
        ConfigError: invalid options, or the component refuses the task.
    """
    if isinstance(metric, Component):
        component, parsed = metric, metric.parse(options or {})
        setup = MetricSetup(labels, sentences)
        make: Callable[[], Metric] = lambda: component.build(setup, parsed)  # noqa: E731
        declared = frozenset(measure.name for measure in component.measures)
    else:
        make, declared = metric, frozenset()
    checked = _Checked(make, declared)
    checked.check_names()
    whole = _scored(labels, sentences)
    count = len(whole.batch)
    result = checked.result([whole])
    checked.require(
        bool(result), "reports nothing for data it supports", "Return each name that is defined"
    )
    everything = np.arange(count)
    orders = {
        "the batches that examples come in": [everything[:1], everything[1:4], everything[4:]],
        "the order of examples": [everything[::-1]],
        "the order of batches": [everything[3:], everything[:3]],
    }
    for what, parts in orders.items():
        found = checked.result([_cut(whole, indices) for indices in parts])
        same = found.keys() == result.keys() and all(
            math.isclose(found[n], result[n], rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
            for n in result
        )
        checked.require(
            same, f"depends on {what}", "Collect sums or columns, and combine them at the end"
        )
    checked.require(
        checked.result([whole]) == result,
        "remembers earlier passes",
        "Keep sums in the object, not in its class or module",
    )
    checked.result([])
    checked.check_pickling(whole, result)


def _scored(labels: LabelSpec, sentences: int) -> Scored:
    """Six examples with random logits, about half of them predicted correctly."""
    batch = random_batch(labels, sentences)
    draw = np.random.default_rng(5)
    count = len(batch)
    if labels.kind == "score":
        logits: Array = draw.normal(size=(count, 5)).astype(np.float32)
        predicted: Array = draw.uniform(labels.low, labels.high, count).astype(np.float32)
        losses: Array = ((predicted - batch.labels) ** 2).astype(np.float32)
        odds = None
    else:
        width = len(labels.names) if labels.kind == "classes" else int(batch.marks.max()) + 1  # type: ignore[union-attr]
        logits = draw.normal(size=(count, width)).astype(np.float32)
        if batch.marks is not None:
            offered = np.arange(width) <= batch.marks.max(1)[:, None]
            logits = np.where(offered, logits, -np.inf).astype(np.float32)
        predicted = logits.argmax(1)
        normal = np.log(np.exp(logits).sum(1))
        losses = (normal - logits[np.arange(count), batch.labels]).astype(np.float32)
        rest = np.log(np.exp(logits[:, :-1]).sum(1)) if labels.kind == "classes" else None
        odds = None if rest is None else (logits[:, -1] - rest).astype(np.float32)
    selections = random_selections(batch)
    moved = tuple(
        np.roll(s, 1, axis=0) & v[:, None] for s, v in zip(selections, batch.valid, strict=True)
    )
    return Scored(batch, selections, moved, predicted, losses, logits, odds)


def _cut(scored: Scored, indices: Array) -> Scored:
    columns = {name: getattr(scored, name) for name in ("predicted", "losses", "logits", "odds")}
    batch, selections = cut_batch(scored.batch, scored.selections, indices)
    return replace(
        scored,
        batch=batch,
        selections=selections,
        moved=cut_batch(scored.batch, scored.moved, indices)[1],
        **{name: None if own is None else own[indices] for name, own in columns.items()},
    )


class _Checked(Promises):
    """A metric, built anew for each pass, and checks of it."""

    def __init__(self, make: Callable[[], Metric], declared: frozenset[str]) -> None:
        super().__init__(ComponentError, type(make()).__name__, "the metric")
        self._make, self._declared = make, declared

    def check_names(self) -> None:
        metric = self._make()
        names = getattr(metric, "names", None)
        good = isinstance(names, tuple) and names and all(_is_name(name) for name in names)
        self.require(
            bool(good) and len(set(names or ())) == len(names or ()),
            f"has the names {names!r:.80}",
            "Give `names`, a tuple of different identifiers",
        )
        undeclared = sorted(set(names or ()) - set(self._declared or names or ()))
        self.require(
            not undeclared,
            f"has the names {', '.join(undeclared)}, which the component's measures lack",
            "Declare a Measure for each",
        )

    def result(self, passed: Sequence[Scored]) -> dict[str, float]:
        """The result of a pass; checks names, finiteness, and that arguments are not modified."""
        metric = self._make()
        for scored in passed:
            before = pickle.dumps(copy.deepcopy(scored))
            metric.add(scored)
            unchanged = pickle.dumps(copy.deepcopy(scored)) == before
            self.require(unchanged, "changes what it is given", "Work on a copy")
        return self._read(metric)

    def _read(self, metric: Metric) -> dict[str, float]:
        try:
            result = metric.result()
        except (ValueError, ZeroDivisionError, IndexError) as error:
            remedy = "Omit what is undefined, as in a pass without an example"
            self.require(False, f"cannot compute its result: {error}", remedy)
        extra = sorted(set(result) - set(metric.names))
        self.require(not extra, f"reports {extra}, not in its names", "List all in `names`")
        for name, value in result.items():
            self.require(
                isinstance(value, float) and math.isfinite(value),
                f"reports {value!r:.40} as '{name}'",
                "Return a finite float, or leave the name out",
            )
        self.require(
            metric.result() == result, "returns another result when called again", "Keep its sums"
        )
        return result

    def check_pickling(self, whole: Scored, result: Mapping[str, float]) -> None:
        metric = self._make()
        metric.add(whole)
        same = self._read(self.pickled(metric)) == result
        self.require(same, "reports other values when pickled", "Keep its state in attributes")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()
