"""How the status of a run is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from rss_rl.cli.show import Json, console, echo_json

if TYPE_CHECKING:
    from rss_rl.training.status import RunStatus, Scored

_EVERY_S = 2.0


def show_status(
    call: Callable[..., RunStatus],
    *,
    follow: Annotated[bool, Parameter(help="Repeat every two seconds until the run ends.")] = False,
    json_: Json = False,
) -> None:
    """Print the status of a run, as a table or as JSON."""
    out = console()
    while True:
        found = call()
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
        if value:
            table.add_row(name, escape("".join(c for c in value if c.isprintable())))
    return table


def _rows(found: RunStatus) -> Iterator[tuple[str, str]]:
    """Names and values; nothing where nothing is known."""
    from rss_rl.training.status import span

    record, tag = found.record, found.record.scalars.get
    steps = "" if record.phase_steps is None else f" of {record.phase_steps}"
    done = None
    if record.updates and record.updates_left is not None:
        done = 1 - record.updates_left / record.updates
    yield "run", found.place
    yield "state", found.state + _known(" by {}", found.holder) + _known(": {}", record.error)
    yield (
        "phase",
        _joined(
            ("{}", record.phase),
            (f"{{}} of {record.phases}", record.phase_number),
            (f"{{}}{steps} updates", record.phase and record.phase_done),
        ),
    )
    yield (
        "progress",
        _joined(
            ("update {}", record.update),
            ("{:.0%} done", done),
            ("{} left", None if record.eta_s is None else span(record.eta_s)),
            ("{:.2f} updates/s", record.updates_per_s),
            ("the last {} ago", _age(record.update_time)),
        ),
    )
    checkpoint = ("step {}", record.checkpoint_step), ("{} ago", _age(record.checkpoint_time))
    yield "checkpoint", _joined(*checkpoint)
    yield "dev", _scored(record.dev)
    yield "best", _scored(record.best)
    yield (
        "kept",
        _joined(
            ("{:.1%}", tag("selection/kept")),
            ("thresholded {:+.1%} from the target", tag("selection/share_error")),
            ("lambda {:.4g}", tag("reward/lambda")),
        ),
    )
    yield (
        "samplers",
        _joined(
            ("{:.0f} alive", tag("sampler/alive")),
            ("restarts {:.0f}", tag("sampler/restarts")),
            ("lag {:.1f}", tag("policy/lag")),
            ("at most {:.0f}", tag("policy/lag_max")),
            ("idle {:.0%}", tag("sampler/idle_share")),
        ),
    )
    yield "learner", _known("idle {:.0%}", tag("learner/idle_share"))
    yield (
        "storage",
        _joined(
            ("{}", record.storage),
            ("{:.0f} checkpoints behind", record.copying.get("storage/lag_checkpoints")),
            ("{:.0f} failures", record.copying.get("storage/failures")),
        ),
    )
    for event in found.problems:
        said = event.get("cause") or event.get("error") or ""
        told = f"{event.get('time')} {event.get('level')} {event.get('event')} {said}"
        yield "warning", told[:300]


def _scored(scored: Scored | None) -> str:
    if scored is None:
        return ""
    from rss_rl.metrics.measures import brief_measures
    from rss_rl.results.output import describe_scores

    shown = (
        f"{mode}: {describe_scores(brief_measures(metrics), ', ')}"
        for mode, metrics in scored.scores.items()
    )
    return f"{'; '.join(shown)} (update {scored.update}, {scored.phase})"


def _known(form: str, value: Any) -> str:
    return "" if value is None else form.format(value)


def _joined(*parts: tuple[str, Any]) -> str:
    """What is known, separated by commas."""
    return ", ".join(filter(None, (_known(form, value) for form, value in parts)))


def _age(then: datetime | None) -> str | None:
    """How long ago a time was."""
    from rss_rl.training.status import span

    return None if then is None else span(max(0.0, (datetime.now(UTC) - then).total_seconds()))
