"""How the status of a run is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from rss_rl.api.terminal import shell
from rss_rl.cli.show import Json, console, echo_json

if TYPE_CHECKING:
    from rss_rl.training.status import RunStatus, Scored

_METRICS = {
    "kept": {
        "selection/kept": "{:.1%}",
        "selection/share_error": "thresholded {:+.1%} from the target",
        "reward/lambda": "lambda {:.4g}",
    },
    "samplers": {
        "sampler/alive": "{:.0f} alive",
        "sampler/restarts": "restarts {:.0f}",
        "policy/lag": "lag {:.1f}",
        "policy/lag_max": "at most {:.0f}",
        "sampler/idle_share": "idle {:.0%}",
    },
    "learner": {"learner/idle_share": "idle {:.0%}"},
    "storage": {
        "storage/lag_checkpoints": "{:.0f} checkpoints behind",
        "storage/failures": "{:.0f} failures",
    },
}
"""The newest metrics that are shown, by row and tag."""


def show_status(call: Callable[..., RunStatus], *, json_: Json = False) -> None:
    """Print the status of a run, as a table or as JSON."""
    status = call()
    if json_:
        echo_json(status.as_json())
    else:
        console().print(_table(status))


def _table(status: RunStatus) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, parts in _rows(status):
        known = [form.format(value) for form, value in parts.items() if value is not None]
        shown = "".join(c for c in ", ".join(known) if c.isprintable())
        if known:
            table.add_row(name, escape(shown))
    return table


def _rows(status: RunStatus) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of rows, and their values by format; None is not known."""
    from rss_rl.runs.run_directory import ALL_TOKENS
    from rss_rl.training.status import span

    def age(then: datetime | None) -> str | None:
        return None if then is None else span(max(0, (datetime.now(UTC) - then).total_seconds()))

    record, values = status.record, status.record.scalars | status.record.copying
    compares = record.phase == ALL_TOKENS
    done = None
    if record.updates and record.updates_left is not None:
        done = 1 - record.updates_left / record.updates
    yield "run", {"{}": status.place}
    yield "state", {"{}": status.state, "by {}": status.holder, "error: {}": record.error}
    yield "remedy", {"{}": _remedy(status)}
    if record.phase is not None:
        steps = "" if record.phase_steps is None else f" of {record.phase_steps}"
        number = {f"{{}} of {record.phases}": record.phase_number}
        name = "all-tokens (the comparison with all words)" if compares else record.phase
        yield "phase", {"{}": name, **number, f"{{}}{steps} updates": record.phase_done}
    yield (
        "progress",
        {
            f"update {{}}{' of the comparison' * compares}": record.update,
            "{:.0%} done": done,
            "{} left": None if record.eta_s is None else span(record.eta_s),
            "{:.2f} updates/s": record.updates_per_s,
            "the last {} ago": age(record.update_time),
        },
    )

    saved = age(record.checkpoint_time)
    yield "checkpoint", {"step {}": record.checkpoint_step, "{} ago": saved}
    yield "dev", {"{}": _scored(record.dev)}
    yield "best of the run" if compares else "best", {"{}": _scored(record.best)}
    yield "copy", {"{}": record.storage}
    for name, forms in _METRICS.items():
        yield name, {form: values.get(tag) for tag, form in forms.items()}
    for event in status.problems:
        said = event.get("cause") or event.get("error") or ""
        line = f"{event.get('time')} {event.get('level')} {event.get('event')} {said}"
        yield "warning", {"{}": line[:300]}


def _remedy(status: RunStatus) -> str | None:
    """How a run that no process trains goes on."""
    from rss_rl.storage import is_uri

    if status.state in ("running", "finished"):
        return None
    storage = status.place if is_uri(status.place) else status.record.storage
    words = ["rss-rl", "train", "--resume", "DIR" if storage == status.place else status.place]
    words += [] if storage is None else ["--storage", storage]
    crashed = "the reason is in its events.jsonl, or in the kernel's log if memory ran out; "
    return f"{crashed if status.state == 'crashed' else ''}{shell(*words)} continues it"


def _scored(scored: Scored | None) -> str | None:
    if scored is None:
        return None
    from rss_rl.metrics.measures import brief_measures, describe_scores

    shown = (
        f"{mode}: {describe_scores(brief_measures(metrics), ', ')}"
        for mode, metrics in scored.scores.items()
    )
    return f"{'; '.join(shown)} (update {scored.update}, {scored.phase})"
