"""The files of a search: tune.md, trials.csv, tune.png, and best.yaml to train with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from rss_rl.errors import ConfigError
from rss_rl.metrics.measures import find_measure, format_measure
from rss_rl.metrics.run_metrics import BestMetric
from rss_rl.results import output
from rss_rl.results.tables.spec import heading, percent_scale
from rss_rl.results.tuning.influence import (
    Influence,
    influences,
    point_at,
    text_of,
    value_of,
)
from rss_rl.results.tuning.study import Study
from rss_rl.results.tuning.trial import WORST, Point, TrialRecord, points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 10
"""Trials shown in the table; the CSV has all."""
_ROUNDING = 1e-9
"""Tolerance for rounding in means over seeds."""
_STATES = {"running": "interrupted"}


def ranked(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Trials from best to worst: finished ones by merit, then others by progress and promise."""

    def order(record: TrialRecord) -> tuple[bool, int, float]:
        last = _last(record)
        if last is None:
            return True, 0, math.inf
        if record.state == "finished":
            return False, 0, -last.merit
        return True, -last.progress, -last.promise

    return sorted(records, key=order)


def _last(record: TrialRecord) -> Point | None:
    found = points(record)
    return found[-1] if found else None


def write_search(study: Study, show: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write the results of the trials; returns the files.

    Args:
        show: called with the Markdown first, so that it is shown even if writing fails.

    Raises:
        ConfigError: every trial failed.
        CheckpointError: a record is damaged, or a write fails.
    """
    records = study.records()
    _refuse_failures(study, records)
    found = [
        influences(study.space, study.base, records, at, over=at == study.updates)
        for at in (*study.rungs, study.updates)
    ]
    markdown = _markdown(study, records, found)
    show(markdown)
    contents: dict[str, str | bytes] = {"tune.md": markdown, "trials.csv": _csv(study, records)}
    if any(points(record) for record in records):
        contents["tune.png"] = _draw(study, records)
    best = ranked(records)[:1]
    if best and best[0].state == "finished":
        contents |= _best_config(study, best[0])
    return output.write_files(study.folder, contents, "search")


def _refuse_failures(study: Study, records: Sequence[TrialRecord]) -> None:
    failed = [record for record in records if record.state == "failed"]
    if failed and len(failed) == len(records):
        raise ConfigError(
            f"all {len(failed)} trials failed, the first with: {failed[0].reason}",
            where=str(study.folder),
            remedy="Train the configuration with 'rss-rl train' until it works, then give another"
            " --out",
        )


def _markdown(
    study: Study, records: Sequence[TrialRecord], found: Sequence[Sequence[Influence]]
) -> str:
    spent = sum(record.core_s for record in records)
    states = [record.state for record in records]
    counted = {
        "finished": states.count("finished"),
        "stopped early": states.count("stopped"),
        "failed": states.count("failed"),
        "interrupted": states.count("running"),
    }
    said = ", ".join(f"{number} {what}" for what, number in counted.items() if number)
    parts = [
        f"# Search: {Path(study.space.where).stem} on {Path(study.base.where).stem}",
        f"{len(records)} trials ({said}), {spent / 60:.1f} core minutes. " + _measure(study),
        _table(study, records),
        _notes(study, records),
        "## What mattered",
        _influence_table(found),
        _influence_notes(study),
    ]
    failures = [f"- trial {r.number}: {r.reason}" for r in records if r.state == "failed"]
    if failures:
        parts += ["## Failed trials", "\n".join(failures)]
    return "\n\n".join(parts) + "\n"


def _measure(study: Study) -> str:
    share = study.config.reward.target_share
    text = f"Compared by {find_measure(study.metric.name).label} on dev"
    if share is not None:
        text += f"; trials that do not keep {share:.0%} of the words, within a point, come last"
    return text + f". {study.seeds} seed{'s' if study.seeds > 1 else ''} per trial."


def _table(study: Study, records: Sequence[TrialRecord]) -> str:
    keys = list(study.space.dimensions)
    metric = study.metric
    header = ["trial", "state", heading(metric.name), "kept %", "updates", "core s"]
    shown = [record for record in ranked(records) if record.state != "failed"][:_SHOWN]
    shown += [r for r in records if r.number == 0 and r not in shown]
    body = []
    for record in shown:
        last = _last(record)
        name = f"{record.number} (as it is)" if record.number == 0 else str(record.number)
        cells = [name, _STATES.get(record.state, record.state)]
        cells += [output.NONE] * 3 if last is None else _cells(last, metric)
        values = (value_of(study.base, record, key) for key in keys)
        values = (f"{v:.4g}" if isinstance(v, float) else text_of(v) for v in values)
        body.append([*cells, f"{record.core_s:.0f}", *values])
    return output.markdown_table([*header, *(f"`{key}`" for key in keys)], body)


def _cells(point: Point, metric: BestMetric) -> list[str]:
    best, missed = output.NONE, ""
    if point.best is not None:
        scale = percent_scale(metric.name)
        places = 1 if scale > 1 else find_measure(metric.name).places
        best = f"{scale * point.best:.{places}f}"
        # Only with a missed target share is merit below the metric's value.
        better = -point.best if metric.lower_is_better else point.best
        missed = "*" if point.merit < better - _ROUNDING else ""
    return [best, f"{100 * point.best_kept:.1f}{missed}", str(point.progress)]


def _notes(study: Study, records: Sequence[TrialRecord]) -> str:
    notes = [
        "Scores are of the best checkpoint of each trial's last phase; `updates` counts those since"
        " words were first selected."
        if study.config.selects
        else "Scores are of the best checkpoint of each trial's last phase.",
        "The best of many dev scores is optimistic: train `best.yaml` with other seeds before you"
        " rely on it.",
    ]
    best = ranked(records)[:1]
    if best and best[0].number == 0 and best[0].state == "finished":
        notes.append("No trial did better than the configuration as it is.")
    if study.config.reward.target_share is not None:
        notes.append("*: misses the target share.")
    return " ".join(notes)


def _influence_table(found: Sequence[Sequence[Influence]]) -> str:
    header = ["key", *(f"after {own[0].progress} updates" for own in found if own)]
    by_key: dict[str, list[str]] = {}
    for own in found:
        for influence in own:
            by_key.setdefault(influence.key, []).append(_influence_cell(influence))
    return output.markdown_table(header, [[f"`{key}`", *cells] for key, cells in by_key.items()])


def _influence_cell(found: Influence) -> str:
    p = "" if found.p is None else f"; p {found.p:.2g}"
    if found.ranks:
        ranks = ", ".join(f"{name}: {mean:.1f} ({n})" for name, (mean, n) in found.ranks.items())
        return f"{ranks}{p}"
    if found.correlation is None:
        return f"too few trials ({found.trials})"
    return f"ρ {found.correlation:+.2f} ({found.trials}){p}"


def _influence_notes(study: Study) -> str:
    return (
        "Ranges: Spearman's ρ of value and rank, positive if larger values did better. Choices:"
        " mean rank, 1 is best. In brackets the number of trials. Each column compares trials at"
        " equal updates: the first has all that got there, later ones only those that were not"
        " stopped, the better ones of the previous column. p: chance of so large a difference for"
        f" one key; with {len(study.space.dimensions)} keys, some are small by chance."
    )


def _csv(study: Study, records: Sequence[TrialRecord]) -> str:
    rows = []
    metric = study.metric.name
    for rank, record in enumerate(ranked(records), start=1):
        last = _last(record)
        row: dict[str, Any] = {"rank": rank, "trial": record.number, "state": record.state}
        row[f"dev_{metric}"] = last and last.best
        row["kept"] = last and last.best_kept
        row |= {"updates": last and last.progress, "core_s": record.core_s}
        for at in study.rungs:
            then = point_at(record, at)
            row[f"dev_{metric}_after_{at}"] = then and then.best
        for key in study.space.dimensions:
            row[key] = text_of(value_of(study.base, record, key))
        rows.append(row | {"reason": record.reason})
    return output.csv_text(rows)


def _best_config(study: Study, best: TrialRecord) -> dict[str, str | bytes]:
    """The base configuration, and one that extends it with the best settings."""
    base = dict(study.base.tree)
    changed = _differences(base, study.base.with_settings(best.settings))
    last = _last(best)
    assert last is not None
    score = format_measure(study.metric.name, last.best)
    head = (
        f"# Trial {best.number} of a search: {find_measure(study.metric.name).label} {score} on"
        f" dev,\n# {last.best_kept:.1%} of the words kept.\n#\n"
        "#   rss-rl train best.yaml seed=1\n"
    )
    text = yaml.safe_dump({"extends": "base.yaml"} | changed, sort_keys=False, allow_unicode=True)
    shown = yaml.safe_dump(base, sort_keys=False, allow_unicode=True)
    origin = f"# Base of the search: {study.base.where} and KEY=VALUE settings.\n"
    return {"base.yaml": origin + shown, "best.yaml": head + text}


def _differences(base: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that a file extending `base` must set to be equal to `tree`."""
    changed = {}
    for key, value in tree.items():
        before: Any = base.get(key)
        if key in base and before == value:
            continue
        changed[key] = value
        sections = isinstance(before, dict) and isinstance(value, dict)
        # A component with another name is written in full, as it inherits no options.
        if sections and before.get("name") == value.get("name"):
            changed[key] = _differences(before, value)
    return changed


def _draw(study: Study, records: Sequence[TrialRecord]) -> bytes:
    """A PNG of the metric against updates for each trial, and against the values of each key."""
    keys = list(study.space.dimensions)
    figure, axes = output.panels(1 + len(keys), 3, (4.6, 3.4))
    metric, scale = study.metric.name, percent_scale(study.metric.name)
    sign = -1 if study.metric.lower_is_better else 1  # promise is better if larger
    figure.suptitle(
        f"Search: {Path(study.space.where).stem} on {Path(study.base.where).stem}", fontsize=12
    )
    _draw_curves(axes[0], study, records, scale)
    colours = {"finished": output.COLOURS[0], "stopped": output.COLOURS[4]}
    at = study.rungs[0] if study.rungs else study.updates
    for number, (key, own) in enumerate(zip(keys, axes[1:], strict=True)):
        for state, colour in colours.items():
            found = [(r, point_at(r, at)) for r in records if r.state == state]
            shown = [
                (value_of(study.base, r, key), sign * scale * p.promise, r.number)
                for r, p in found
                if p is not None and p.promise > WORST
            ]
            _scatter(own, study, key, shown, colour, state)
        own.set_title(key, fontsize=9)
        off = "" if study.config.reward.target_share is None else ", less the share it is off,"
        own.set_ylabel(f"dev {heading(metric)}{off} after {at} updates", fontsize=7)
        own.grid(color="0.9")
        own.set_axisbelow(True)
        if number == 0:
            own.scatter([], [], s=60, color="0.3", label="large: as it is")
            own.legend(fontsize=7)
    return output.png(figure)


def _draw_curves(axes: Axes, study: Study, records: Sequence[TrialRecord], scale: int) -> None:
    labelled: set[str] = set()
    best = next((r for r in ranked(records) if r.state == "finished"), None)
    for record in sorted(records, key=lambda r: (r is best, r.number == 0)):
        curve = [point for point in points(record) if point.value is not None]
        name, colour, width = "other trials", "0.7", 0.8
        if record.number == 0:
            name, colour, width = "as it is", output.COLOURS[1], 1.8
        if record is best and record.number != 0:
            name, colour, width = f"best: trial {record.number}", output.COLOURS[0], 1.8
        axes.plot(
            [point.progress for point in curve],
            [scale * point.value for point in curve if point.value is not None],
            color=colour,
            linewidth=width,
            label=None if name in labelled else name,
        )
        labelled.add(name)
    for rung in study.rungs:
        axes.axvline(rung, color="0.5", linestyle=":", linewidth=0.8)
    axes.set_title("Each trial; dotted: where the worse ones are stopped", fontsize=9)
    since = " since words were first selected" if study.config.selects else ""
    axes.set_xlabel(f"updates{since}")
    axes.set_ylabel(f"dev {heading(study.metric.name)}", fontsize=8)
    axes.grid(color="0.9")
    axes.legend(fontsize=8)


def _scatter(
    axes: Axes,
    study: Study,
    key: str,
    shown: Sequence[tuple[Any, float, int]],
    colour: str,
    state: str,
) -> None:
    """Plot the trials of one state; choices at their index, ranges on their scale."""
    from matplotlib.ticker import NullLocator

    own = study.space.dimensions[key]
    if own.choice is None:
        across = [float(value) for value, _, _ in shown]
        if own.log is not None:
            low, high = own.log
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
            ticks = [low, (low * high) ** 0.5, high]
            axes.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
            margin = (high / low) ** 0.05
            inside = [low, high, *across]
            axes.set_xlim(min(inside) / margin, max(inside) * margin)
    else:
        numbers = {text_of(value): number for number, value in enumerate(own.choice)}
        numbers.setdefault(text_of(value_of(study.base, TrialRecord(0, {}), key)), len(numbers))
        axes.set_xticks(list(numbers.values()), list(numbers), fontsize=8)
        # Jitter, so that equal values do not overlap.
        across = [numbers[text_of(v)] + 0.04 * ((7 * n) % 5 - 2) for v, _, n in shown]
    sizes = np.array([60 if number == 0 else 22 for _, _, number in shown])
    if shown:
        label = "finished" if state == "finished" else "stopped early"
        axes.scatter(across, [y for _, y, _ in shown], s=sizes, color=colour, label=label)
