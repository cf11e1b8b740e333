"""Every event a run can log: its name, its own fields, and what it means."""

from __future__ import annotations

__all__ = ["EVENTS", "EventKind", "events_markdown", "find_event", "register_event"]

from collections.abc import Iterable
from dataclasses import dataclass

from rss_rl.errors import nearest


@dataclass(frozen=True)
class EventKind:
    """One kind of event.

    name     in snake case
    meaning  when it is logged
    fields   names it may carry beside those that every event has
    """

    name: str
    meaning: str
    fields: tuple[str, ...] = ()


EVENTS: dict[str, EventKind] = {}
"""By name, in the order of registration."""


def register_event(kind: EventKind) -> EventKind:
    """Make `kind` known, so that a log takes it.

    Raises:
        ValueError: its name is taken.
    """
    if kind.name in EVENTS:
        raise ValueError(f"event {kind.name!r} is registered already")
    EVENTS[kind.name] = kind
    return kind


def find_event(name: str, fields: Iterable[str] = ()) -> EventKind:
    """The event called `name`, which may carry `fields`.

    Raises:
        ValueError: no such event or field; names the nearest known one.
    """
    kind = EVENTS.get(name)
    if kind is None:
        raise ValueError(f"no registered event {name!r}{nearest(name, list(EVENTS))}")
    for field in fields:
        if field not in kind.fields:
            hint = nearest(field, list(kind.fields))
            raise ValueError(f"event {name!r} has no field {field!r}{hint}")
    return kind


def events_markdown() -> str:
    """The table of all events, as it stands in docs/metrics.md."""
    lines = ["| event | when | fields |", "|---|---|---|"]
    for kind in EVENTS.values():
        fields = ", ".join(f"`{field}`" for field in kind.fields)
        lines.append(f"| `{kind.name}` | {kind.meaning} | {fields} |")
    return "\n".join(lines)


for _kind in (
    EventKind("run_started", "training begins in a new run directory", ("path", "storage")),
    EventKind("run_resumed", "training goes on from a checkpoint", ("path", "storage", "step")),
    EventKind("run_finished", "the report was written", ("wall_s",)),
    EventKind("run_stopped", "the run was asked to stop and saved what it had", ()),
    EventKind("run_failed", "an error ended the run", ("error", "kind")),
    EventKind("stop_asked", "a signal or a caller asked the run to stop", ()),
    EventKind("phase_began", "a phase begins or is gone on with", ("phase", "steps", "done")),
    EventKind("evaluated", "the dev split was scored", ("phase", "best", "scores")),
    EventKind("checkpoint_saved", "a checkpoint is complete on the local disk", ("step", "part")),
    EventKind("checkpoint_passed_over", "a damaged checkpoint was not used", ("cause",)),
    EventKind("sampler_started", "a sampler answers", ("node",)),
    EventKind("sampler_died", "a sampler's process is gone", ("node", "cause")),
    EventKind("sampler_hung", "a sampler gave no answer in time", ("node", "cause")),
    EventKind("sampler_waiting", "a sampler is not placed or started in time; asked for again"),
    EventKind("sampler_replaced", "a new sampler stands in for a lost one", ("node",)),
    EventKind("rollout_discarded", "a rollout was too old; sampled again", ("shard", "lag")),
    EventKind("learner_lost", "a learner process is gone or hung", ("cause",)),
    EventKind("storage_restored", "a run was fetched from its storage", ("files",)),
    EventKind(
        "storage_synced", "the storage holds all up to a step", ("step", "files", "upload_s")
    ),
    EventKind("storage_failed", "an upload failed and is tried again", ("cause", "failures")),
):
    register_event(_kind)
