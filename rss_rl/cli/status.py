"""`rss-rl status`: what a run is doing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.markup import escape
from rich.table import Table

from rss_rl.cli.show import Json, console, echo_json

if TYPE_CHECKING:
    from rss_rl.training.status import RunStatus, Scored, StatusRecord

    Tags = dict[str, float | None]

_UNITS = ((86400, "d", 1), (3600, "h", 1), (60, "min", 0), (1, "s", 0))
"""Length in seconds, name and decimal places."""


def status(
    run: str,
    *,
    follow: bool = False,
    every: Annotated[float, Parameter(validator=Number(gte=0.1), metavar="SECONDS")] = 2.0,
    json_: Json = False,
) -> None:
    """Print what a run is doing: its phase, progress, scores, samplers, storage and warnings.

    Args:
        run: Directory of a run, or the storage path of its copy.
        follow: Repeat until the run ends.
        every: Time between two readings.

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
        time.sleep(every)


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
    yield "run", found.place
    by = f" by {found.holder}" if found.holder else ""
    why = f": {record.error}" if record.error and found.state != "running" else ""
    yield "state", f"{found.state}{by}{why}"
    yield "phase", _phase(record)
    yield "progress", _progress(record)
    seen = f"last update {_ago(age(record.update_time))}"
    yield "speed", f"{_shown(record.updates_per_s, '{:.2f} updates/s')}, {seen}"
    step = _shown(record.checkpoint_step, "step {}")
    yield "checkpoint", f"{step}, {_ago(age(record.checkpoint_time))}"
    yield "dev", _scored(record.dev)
    yield "best", _scored(record.best)
    yield "kept", _kept(tags)
    yield "samplers", _samplers(tags)
    yield "learner", f"idle {_shown(tags.get('learner/idle_share'), '{:.0%}')}"
    yield "storage", _storage(record)
    yield "disk free", _shown(found.disk_free_bytes, "{:,.1f} GB", 1e9)
    for number, event in enumerate(found.problems):
        yield "" if number else "warnings", _problem(event)
    if not found.problems:
        yield "warnings", "-"


def _phase(record: StatusRecord) -> str:
    if record.phase is None:
        return "-"
    # The all-tokens comparison runs after the phases of the configuration.
    listed = record.phase_number and record.phases and record.phase_number <= record.phases
    number = f" ({record.phase_number} of {record.phases})" if listed else ""
    of = "" if record.phase_steps is None else f" of {record.phase_steps}"
    return f"{record.phase}{number}, {record.phase_done}{of} updates"


def _progress(record: StatusRecord) -> str:
    of = "" if record.updates is None else f" of {record.updates}"
    share = f", {(record.update or 0) / record.updates:.0%}" if record.updates else ""
    left = "" if record.eta_s is None else f", {_span(record.eta_s)} left"
    return f"update {_shown(record.update, '{}')}{of}{share}{left}"


def _kept(tags: Tags) -> str:
    kept = _shown(tags.get("selection/kept"), "{:.1%}")
    if tags.get("reward/lambda") is None:
        return kept
    error = _shown(tags.get("selection/share_error"), "{:+.1f} points", 0.01)
    return f"{kept}, thresholded {error} from the target, lambda {tags['reward/lambda']:.4g}"


def _samplers(tags: Tags) -> str:
    parts = (
        ("sampler/alive", "{:.0f}", "{} alive"),
        ("sampler/restarts", "{:.0f}", "restarts {}"),
        ("policy/lag", "{:.1f}", "lag {}"),
        ("policy/lag_max", "{:.0f}", "(max {})"),
        ("sampler/idle_share", "{:.0%}", "idle {}"),
    )
    shown = [words.format(_shown(tags.get(tag), form)) for tag, form, words in parts]
    return ", ".join(shown).replace(", (", " (")


def _storage(record: StatusRecord) -> str:
    if record.storage is None:
        return "-"
    lag = _shown(record.copying.get("storage/lag_checkpoints"), "{:.0f} checkpoints behind")
    failed = _shown(record.copying.get("storage/failures"), "{:.0f} failures")
    return f"{record.storage}, {lag}, {failed}"


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


def _problem(event: dict[str, Any]) -> str:
    said = event.get("cause") or event.get("error") or ""
    return f"{event.get('time')} {event.get('level')} {event.get('event')} {said}"[:300]


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
