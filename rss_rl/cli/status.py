"""`rss-rl status`: what a run is doing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from rss_rl.cli.show import Json, console, echo_json

if TYPE_CHECKING:
    from rss_rl.training.status import RunStatus, Scored

_EVERY_S = 2.0
_UNITS = ((86400, "d", 1), (3600, "h", 1), (60, "min", 0), (1, "s", 0))
"""Length in seconds, name and decimal places."""


def status(
    run: str,
    *,
    follow: bool = False,
    json_: Json = False,
) -> None:
    """Print what a run is doing: its phase, progress, scores, samplers, storage and warnings.

    Args:
        run: Directory of a run, or the storage path of its copy.
        follow: Repeat every two seconds until the run ends.

    Examples:
        `rss-rl status runs/demo`

        `rss-rl status s3://bucket/run --follow` reads the copy on a storage path, repeatedly.

        `rss-rl status runs/demo --json` for programs; `state` is running, finished, stopped,
        failed, crashed (no process trains, and no error was logged) or not running.
    """
    from rss_rl.training.status import read_status

    out = console()
    while True:
        found = read_status(run)
        if json_:
            echo_json(found.as_json(), None if follow else 2)
        else:
            if follow and out.is_terminal:
                out.clear()
            out.print(_table(found))
        if not follow or found.state != "running":
            return
        time.sleep(_EVERY_S)


def _table(found: RunStatus) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in _rows(found):
        shown = "".join(c for c in value if c.isprintable() or c == "\n")
        table.add_row(name, escape(shown))
    return table


def _rows(found: RunStatus) -> Iterator[tuple[str, str]]:
    from rss_rl.training.status import age

    record, tags = found.record, found.record.scalars

    def tag(name: str, form: str) -> str:
        return _shown(tags.get(name), form)

    yield "run", found.place
    by = f" by {found.holder}" if found.holder else ""
    why = f": {record.error}" if record.error and found.state != "running" else ""
    yield "state", f"{found.state}{by}{why}"
    # The all-tokens comparison runs after the phases of the configuration.
    listed = record.phase_number and record.phases and record.phase_number <= record.phases
    number = f" ({record.phase_number} of {record.phases})" if listed else ""
    done = f"{record.phase_done}{_shown(record.phase_steps, ' of {}', '')} updates"
    yield "phase", f"{record.phase}{number}, {done}" if record.phase else "-"
    share = f", {(record.update or 0) / record.updates:.0%}" if record.updates else ""
    of = f"{_shown(record.update)}{_shown(record.updates, ' of {}', '')}{share}"
    left = "" if record.eta_s is None else f", {_span(record.eta_s)} left"
    yield "progress", f"update {of}{left}"
    speed = _shown(record.updates_per_s, "{:.2f} updates/s")
    yield "speed", f"{speed}, last update {_ago(age(record.update_time))}"
    step = _shown(record.checkpoint_step, "step {}")
    yield "checkpoint", f"{step}, {_ago(age(record.checkpoint_time))}"
    yield "dev", _scored(record.dev)
    yield "best", _scored(record.best)
    kept = tag("selection/kept", "{:.1%}")
    if tags.get("reward/lambda") is not None:
        kept += f", thresholded {tag('selection/share_error', '{:+.1%}')} from the target"
        kept += tag("reward/lambda", ", lambda {:.4g}")
    yield "kept", kept
    lag = f"lag {tag('policy/lag', '{:.1f}')} (max {tag('policy/lag_max', '{:.0f}')})"
    alive = f"{tag('sampler/alive', '{:.0f}')} alive, restarts {tag('sampler/restarts', '{:.0f}')}"
    yield "samplers", f"{alive}, {lag}, idle {tag('sampler/idle_share', '{:.0%}')}"
    yield "learner", f"idle {tag('learner/idle_share', '{:.0%}')}"
    behind = _shown(record.copying.get("storage/lag_checkpoints"), "{:.0f} checkpoints behind")
    failed = _shown(record.copying.get("storage/failures"), "{:.0f} failures")
    yield "storage", f"{record.storage}, {behind}, {failed}" if record.storage else "-"
    free = found.disk_free_bytes
    yield "disk free", "-" if free is None else f"{free / 1e9:,.1f} GB"
    for event in found.problems:
        said = event.get("cause") or event.get("error") or ""
        yield (
            "warning",
            f"{event.get('time')} {event.get('level')} {event.get('event')} {said}"[:300],
        )


def _scored(scored: Scored | None) -> str:
    if scored is None:
        return "-"
    from rss_rl.metrics.measures import brief_measures
    from rss_rl.results.output import describe_scores

    shown = (
        f"{mode}: {describe_scores(brief_measures(metrics), ', ')}"
        for mode, metrics in scored.scores.items()
    )
    return f"{'; '.join(shown)} (update {scored.update}, {scored.phase})"


def _shown(value: float | None, form: str = "{}", missing: str = "-") -> str:
    return missing if value is None else form.format(value)


def _ago(seconds: float | None) -> str:
    return "-" if seconds is None else f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    """A time span in its largest unit.

    >>> _span(5), _span(90), _span(8000)
    ('5 s', '2 min', '2.2 h')
    """
    size, unit, places = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{seconds / size:.{places}f} {unit}"
