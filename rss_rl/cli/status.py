"""`rss-rl status`: what a run is doing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from rss_rl.cli import options
from rss_rl.cli.options import argument, console, option

if TYPE_CHECKING:
    from rss_rl.training.status import RunStatus

EPILOG = """
Examples:

`rss-rl status runs/demo`

`rss-rl status s3://bucket/run --follow` reads the copy on a storage path, repeatedly.

`rss-rl status runs/demo --json` for programs; `state` is running, finished, stopped, failed,
crashed (no process trains, and no error was logged) or not running.
"""
_UNITS = ((86400, "d", 1), (3600, "h", 1), (60, "min", 0), (1, "s", 0))
"""Length in seconds, name and decimal places."""


def status(
    run: Annotated[str, argument("RUN", "Directory of a run, or the storage path of its copy.")],
    follow: Annotated[bool, option("--follow", "Repeat until the run ends.")] = False,
    every: Annotated[float, option("--every SECONDS", "Time between two readings.", min=0.1)] = 2.0,
    json_: options.Json = False,
) -> None:
    """Print what a run is doing: its phase, progress, scores, samplers, storage and warnings."""
    from rss_rl.training.status import read_status

    out = console()
    while True:
        found = read_status(run)
        if json_:
            typer.echo(json.dumps(found.as_json(), indent=None if follow else 2))
        else:
            if follow and out.is_terminal:
                out.clear()
            out.print(_table(found))
        if not follow or found.state != "running":
            return
        time.sleep(every)


def _table(found: RunStatus) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in _rows(found):
        table.add_row(name, escape(value))
    return table


def _rows(found: RunStatus) -> Iterator[tuple[str, str]]:
    yield "run", found.place
    by = f" by {found.holder}" if found.holder else ""
    why = f": {found.error}" if found.error and found.state != "running" else ""
    yield "state", f"{found.state}{by}{why}"
    yield "phase", _phase(found)
    yield "progress", _progress(found)
    seen = f"last update {_ago(found.update_age_s)}"
    yield "speed", f"{_shown(found.updates_per_s, '{:.2f} updates/s')}, {seen}"
    step = _shown(found.checkpoint_step, "step {}")
    yield "checkpoint", f"{step}, {_ago(found.checkpoint_age_s)}"
    yield "dev", _scored(found.dev)
    yield "best", _scored(found.best)
    yield "kept", _kept(found.scalars)
    yield "samplers", _samplers(found.scalars)
    yield "learner", f"idle {_shown(found.scalars.get('learner/idle_share'), '{:.0%}')}"
    yield "storage", _storage(found)
    yield "disk free", _shown(found.disk_free_bytes, "{:,.1f} GB", 1e9)
    for number, event in enumerate(found.problems):
        yield "" if number else "warnings", _problem(event)
    if not found.problems:
        yield "warnings", "-"


def _phase(found: RunStatus) -> str:
    if found.phase is None:
        return "-"
    # The all-tokens comparison runs after the phases of the configuration.
    listed = found.phase_number and found.phases and found.phase_number <= found.phases
    number = f" ({found.phase_number} of {found.phases})" if listed else ""
    of = "" if found.phase_steps is None else f" of {found.phase_steps}"
    return f"{found.phase}{number}, {_shown(found.phase_done, '{}')}{of} updates"


def _progress(found: RunStatus) -> str:
    of = "" if found.updates is None else f" of {found.updates}"
    share = "" if found.progress is None else f", {found.progress:.0%}"
    left = "" if found.eta_s is None else f", {_span(found.eta_s)} left"
    return f"update {_shown(found.update, '{}')}{of}{share}{left}"


def _kept(tags: dict[str, float]) -> str:
    kept = _shown(tags.get("selection/kept"), "{:.1%}")
    if "reward/lambda" not in tags:
        return kept
    error = _shown(tags.get("selection/share_error"), "{:+.1f} points", 0.01)
    return f"{kept}, thresholded {error} from the target, lambda {tags['reward/lambda']:.4g}"


def _samplers(tags: dict[str, float]) -> str:
    parts = (
        ("sampler/alive", "{:.0f}", "{} alive"),
        ("sampler/restarts", "{:.0f}", "restarts {}"),
        ("policy/lag", "{:.1f}", "lag {}"),
        ("policy/lag_max", "{:.0f}", "(max {})"),
        ("pipeline/discarded", "{:.0f}", "discarded {}"),
        ("sampler/idle_share", "{:.0%}", "idle {}"),
    )
    shown = [words.format(_shown(tags.get(tag), form)) for tag, form, words in parts]
    return ", ".join(shown).replace(", (", " (")


def _storage(found: RunStatus) -> str:
    if found.storage is None:
        return "-"
    lag = _shown(found.copying.get("storage/lag_checkpoints"), "{:.0f} checkpoints behind")
    failed = _shown(found.copying.get("storage/failures"), "{:.0f} failures")
    return f"{found.storage}, {lag}, {failed}"


def _scored(scored: dict[str, Any] | None) -> str:
    if scored is None:
        return "-"
    from rss_rl.metrics.measures import brief_measures
    from rss_rl.results.output import describe_scores

    shown = (
        f"{mode}: {describe_scores(brief_measures(metrics), ', ')}"
        for mode, metrics in scored["scores"].items()
    )
    return f"{'; '.join(shown)} (update {scored['update']}, {scored['phase']})"


def _problem(event: dict[str, Any]) -> str:
    said = event.get("cause") or event.get("error") or ""
    text = f"{event.get('time')} {event.get('level')} {event.get('event')} {said}"
    return "".join(c for c in text if c.isprintable())[:300]


def _shown(value: float | None, form: str, unit: float = 1) -> str:
    if value is None:
        return "-"
    return form.format(value if unit == 1 else value / unit)


def _ago(seconds: float | None) -> str:
    return "-" if seconds is None else f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    """A time span in its largest unit.

    >>> _span(5), _span(90), _span(8000)
    ('5 s', '2 min', '2.2 h')
    """
    size, unit, places = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{seconds / size:.{places}f} {unit}"
