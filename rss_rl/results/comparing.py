"""Comparing runs: groups of seeds, differing settings, paired significance tests, curves.

Runs whose configurations differ only in the seed form a group; groups are A, B, C in the order
given. The others are compared with A over their common seeds.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from rss_rl.components import NOTHING, Trust
from rss_rl.config import flat_settings
from rss_rl.errors import CheckpointError
from rss_rl.metrics.measures import all_measures, find_measure, leading_measures
from rss_rl.results.curves import Curve, read_curves
from rss_rl.results.output import COLOURS, panels, png
from rss_rl.results.summary import is_number
from rss_rl.runs.run_directory import REPORT_FILE, RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST = 3
"""Fewest common seeds for a claim: two differences may well be chance."""

_MOST_ENUMERATED = 16
_DRAWS = 100_000
_MODES = ("thresholded", "sampled", "all")
_DEV_CURVES = ("kept", "reward", "loss")
_TRAINING_CURVES = ("reward/lambda", "selection/kept")
_MOST_POINTS = 300


@dataclass(frozen=True)
class Run:
    """A run: its complete configuration as a tree, and its report; None if not finished."""

    path: Path
    config: Mapping[str, Any]
    report: Mapping[str, Any] | None

    @property
    def seed(self) -> int:
        """The configuration's seed."""
        return int(self.config["seed"])


@dataclass(frozen=True)
class Group:
    """Runs that differ only in the seed, named by a letter."""

    name: str
    runs: tuple[Run, ...]

    def finished(self) -> list[Run]:
        """The runs with a report."""
        return [run for run in self.runs if run.report is not None]


@dataclass(frozen=True)
class Difference:
    """A metric of group `other` minus that of the first, over their common seeds.

    seeds        common to both
    mean         of the differences; None without common seeds
    t_test       two-sided p of the paired t-test; None below three seeds, or if all differences
                 are equal
    permutation  two-sided p over all ways to flip the differences' signs; None below three seeds
    """

    other: str
    metric: str
    seeds: tuple[int, ...]
    mean: float | None
    t_test: float | None
    permutation: float | None
    lower_is_better: bool = False


def read_run(path: Path, trust: Trust = NOTHING) -> Run:
    """Read a run's configuration and report; for `trust` see `open_models`.

    Raises:
        CheckpointError: there is no run, or its report is damaged.
        ConfigError: its configuration is not valid in this version.
    """
    directory = RunDirectory.open(path)
    config = directory.parsed_config(trust)
    finished = (path / REPORT_FILE).is_file()
    return Run(path, config.model_dump(mode="json"), directory.read_report() if finished else None)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group the runs by configuration, in their order.

    Raises:
        CheckpointError: a group has a seed twice, or there are too many groups.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps({name: value for name, value in run.config.items() if name != "seed"})
        found.setdefault(key, []).append(run)
    if len(found) > len(string.ascii_uppercase):
        raise CheckpointError(f"{len(found)} configurations", remedy="Compare 26 at most")
    for same in found.values():
        seeds = [run.seed for run in same]
        if len(set(seeds)) < len(seeds):
            twice = next(run for run in same if seeds.count(run.seed) > 1)
            raise CheckpointError(
                f"two runs of one configuration have the seed {twice.seed}",
                where=str(twice.path),
                remedy="Name each seed's run once: a repeated one makes the spread too small",
            )
    pairs = zip(string.ascii_uppercase, found.values(), strict=False)
    return [Group(name, tuple(same)) for name, same in pairs]


def config_differences(groups: Sequence[Group]) -> list[tuple[str, list[str]]]:
    """The keys of `setting_rows` whose values differ between groups."""
    return [(key, values) for key, values, differ in setting_rows(groups, json.dumps) if differ]


def setting_rows(
    groups: Sequence[Group], form: Callable[[Any], str]
) -> list[tuple[str, list[str], bool]]:
    """Dotted keys, the value that each group has (`-` for none), and whether the values differ.

    Seeds are left out.
    """
    flat = [dict(flat_settings(group.runs[0].config)) for group in groups]
    rows = []
    for key in dict.fromkeys(key for own in flat for key in own if key != "seed"):
        values = [form(own[key]) if key in own else "-" for own in flat]
        rows.append((key, values, len(set(values)) > 1))
    return rows


def main_score(groups: Sequence[Group], split: str) -> tuple[str, dict[str, str]] | None:
    """The metric to compare groups by, and the mode of each group; None if they share none."""
    modes: dict[str, str] = {}
    measured: list[set[str]] = []
    for group in groups:
        scores = [(run.report or {}).get("splits", {}).get(split, {}) for run in group.finished()]
        mode = next((m for m in _MODES if scores and all(m in own for own in scores)), None)
        if mode is None:
            return None
        modes[group.name] = mode
        measured += [{n for n, value in own[mode].items() if is_number(value)} for own in scores]
    shared = set.intersection(*measured) if measured else set()
    chosen_by = (
        run.config.get("evaluation", {}).get("best_metric")
        for group in groups[:1]
        for run in group.runs
    )
    named = (*chosen_by, *leading_measures(), *all_measures())
    metric = next((name for name in named if name in shared), None)
    return None if metric is None else (metric, modes)


def paired(
    first: Group, other: Group, split: str, metric: str, modes: Mapping[str, str]
) -> Difference:
    """Difference of a group from the first, over the seeds that both have finished."""
    values = [
        {
            run.seed: float(run.report["splits"][split][modes[group.name]][metric])
            for run in group.runs
            if run.report is not None
        }
        for group in (first, other)
    ]
    seeds = tuple(sorted(set(values[0]) & set(values[1])))
    gaps = np.array([values[1][seed] - values[0][seed] for seed in seeds])
    mean = float(gaps.mean()) if len(gaps) else None
    t_test = permutation = None
    if len(gaps) >= FEWEST:
        permutation = _sign_flips(gaps)
        if np.ptp(gaps) > 0:
            t_test = float(stats.ttest_1samp(gaps, 0.0).pvalue)
    lower = find_measure(metric).lower_is_better
    return Difference(other.name, metric, seeds, mean, t_test, permutation, lower)


def _sign_flips(gaps: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Two-sided p of the sign-flip test: share of sign flips with at least the observed |mean|.

    Exact (all flips) up to 16 differences; beyond that 100,000 flips drawn with a fixed seed, and
    the observed one.
    """
    seen = abs(gaps.sum()) * (1 - 1e-12)
    if len(gaps) <= _MOST_ENUMERATED:
        signs = np.array(list(product((-1, 1), repeat=len(gaps))))
        return float((abs(signs @ gaps) >= seen).mean())
    drawn = np.random.default_rng(0).choice((-1, 1), (_DRAWS, len(gaps)))
    return float((1 + (abs(drawn @ gaps) >= seen).sum()) / (1 + _DRAWS))


def draw_curves(groups: Sequence[Group]) -> bytes | None:
    """A PNG with a panel per metric and a line per run; None if nothing is logged.

    Raises:
        CheckpointError: the metrics of a run are damaged.
    """
    logged = {run.path: read_curves(run.path) for group in groups for run in group.runs}
    wanted = [
        [f"dev/{mode}/{name}" for mode in ("thresholded", "all")]
        for name in (*leading_measures(), *_DEV_CURVES)
    ] + [[tag] for tag in _TRAINING_CURVES]
    shown = [tags for tags in wanted if any(t in own for own in logged.values() for t in tags)]
    if not shown:
        return None
    figure, axes = panels(len(shown), 2, (5.2, 2.9))
    for panel, tags in zip(axes, shown, strict=True):
        for number, group in enumerate(groups):
            for run in group.runs:
                _draw_run(panel, logged[run.path], tags, COLOURS[number % len(COLOURS)])
    for number, group in enumerate(groups):
        axes[0].plot([], [], color=COLOURS[number % len(COLOURS)], label=group.name)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=8, fontsize=9)
    return png(figure)


def _draw_run(axes: Axes, curves: Mapping[str, Curve], tags: Sequence[str], colour: str) -> None:
    for number, tag in enumerate(tag for tag in tags if tag in curves):
        steps, values = curves[tag]
        thinned = slice(None, None, max(1, len(steps) // _MOST_POINTS))
        # With both modes of a metric, all tokens is dashed.
        style = "--" if tag.startswith("dev/all/") and number else "-"
        axes.plot(steps[thinned], values[thinned], style, color=colour, linewidth=0.9, alpha=0.8)
        axes.set_title(tag.replace("dev/all/", "dev/").replace("thresholded/", ""), fontsize=10)
    axes.set_xlabel("updates", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(color="0.9")
