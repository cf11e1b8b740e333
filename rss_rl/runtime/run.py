"""A whole run: training, the same model with every token for comparison, and the final report."""

from __future__ import annotations

__all__ = ["ALL_TOKENS", "Finished", "RunEvent", "open_models", "train"]

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rss_rl.config import PhaseConfig, RunConfig, parse_config
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import CheckpointError, DataError
from rss_rl.models.build import parameter_count
from rss_rl.runtime.backend import Backend, LocalBackend
from rss_rl.runtime.checkpoint import Checkpoint, checkpoint_steps, load_checkpoint, mark_best
from rss_rl.runtime.device import find_device
from rss_rl.runtime.evaluation import Mode, evaluate
from rss_rl.runtime.metrics import MetricsWriter
from rss_rl.runtime.mirror import open_mirror
from rss_rl.runtime.observer import Observer
from rss_rl.runtime.restoring import check_step, restoring
from rss_rl.runtime.run_directory import ALL_TOKENS, RunDirectory
from rss_rl.runtime.sampler import Sampler
from rss_rl.runtime.snapshot import Models, build_prepared_models
from rss_rl.runtime.trainer import Event, PhaseBegan, Stopped, Trainer, check_best_metric
from rss_rl.runtime.weights import load_weights

_FORK = "fork"
_INPUTS = ("manifest.json", "vocabulary.json", "vectors.safetensors")


@dataclass(frozen=True)
class Finished:
    """The run is over; `report` is what stands in report.json."""

    path: Path
    report: dict[str, Any]


RunEvent = Event | Finished
MakeBackend = Callable[[RunConfig, Prepared, Path], Backend]


def local_backend(config: RunConfig, prepared: Prepared, _: Path) -> Backend:
    """A sampler in this process."""
    sampler = Sampler(config, build_prepared_models(config, prepared), prepared.split("train"))
    return LocalBackend(sampler)


def train(
    config: RunConfig,
    path: Path,
    *,
    backend: MakeBackend = local_backend,
    resume: bool = False,
    overwrite: bool = False,
    stop: Callable[[], bool] = lambda: False,
    storage: str | None = None,
    take_over: bool = False,
) -> Iterator[RunEvent]:
    """Train in the run directory `path`, as a stream of events that ends in `Finished`.

    Args:
        config: of the run; must equal the stored one where `resume` is set.
        backend: makes the source of rollouts.
        resume: go on from the last checkpoint, where there is one.
        overwrite: replace a run that is there.
        stop: asked after each update; True ends the stream with `Stopped` after a checkpoint.
        storage: URI or path that gets a copy of the run; with `resume` also where an empty `path`
            gets the run from. take_over: write there though another process seems to.

    Raises:
        RssError: any expected failure.
    """
    prepared = open_prepared(config.data)
    find_device(config.learner.device)
    check_best_metric(config, prepared.labels)
    mirror = open_mirror(storage, path, config, resume, overwrite, take_over)
    with (
        closing(mirror),
        _directory(config, path, resume, overwrite) as run,
        Observer(run.path, config, mirror, storage) as observer,
    ):
        _copy_inputs(run, prepared)
        start = _latest(path)
        trainer = yield from _train_phases(config, run, prepared, backend, start, stop, observer)
        if trainer is None:
            return
        reports = _score(trainer, config, prepared)
        wall_s = trainer.wall_seconds
        if _compares(config):
            whole = yield from _train_all_tokens(config, trainer, prepared, stop, observer)
            if whole is None:
                return
            for split, modes in whole.items():
                reports[split] = {**modes, **reports[split]}
        report = _report(trainer, config, reports, wall_s)
        run.write_report(report)
        observer.finished(wall_s)
        yield Finished(run.path, report)


def _directory(config: RunConfig, path: Path, resume: bool, overwrite: bool) -> RunDirectory:
    resolved = config.model_dump(mode="json")
    if not (resume and (path / "config.json").exists()):
        return RunDirectory.create(path, resolved, overwrite=overwrite)
    run = RunDirectory.open(path, lock=True)
    began = parse_config(run.config, where=str(path / "config.json")).model_dump(mode="json")
    changed = [key for key in resolved if resolved[key] != began[key]]
    if changed:
        run.close()
        raise CheckpointError(
            f"the configuration differs from the run's in: {', '.join(changed)}",
            where=str(path),
            remedy="Resume without overrides, or start a new run in another directory",
        )
    return run


def _copy_inputs(run: RunDirectory, prepared: Prepared) -> None:
    """Keep with the run what its weights depend on.

    Raises:
        DataError: a run that is gone on with began with other data.
    """
    if (run.inputs / _INPUTS[0]).is_file() and (
        open_prepared(run.inputs).manifest != prepared.manifest
    ):
        raise DataError(
            "the data are not those the run began with",
            where=str(prepared.folder),
            remedy="Prepare them as they were, or start a new run in another directory",
        )
    for name in _INPUTS:
        run.copy_in(prepared.folder / name)


def _latest(path: Path) -> Checkpoint | None:
    return load_checkpoint(path) if checkpoint_steps(path) else None


def _train_phases(
    config: RunConfig,
    run: RunDirectory,
    prepared: Prepared,
    backend: MakeBackend,
    resume: Checkpoint | None,
    stop: Callable[[], bool],
    observer: Observer,
) -> Generator[RunEvent, None, Trainer | None]:
    """The events of one trainer; returns it, or None when it was stopped."""
    step = None if resume is None else resume.step
    rows = None if resume is None else resume.state.get("metric_rows")
    observer.begin_from(resume)
    with MetricsWriter(run.path, step, rows) as writer:
        with restoring(resume):
            trainer = Trainer(
                config,
                run.path,
                prepared,
                writer,
                backend=lambda: backend(config, prepared, Path(config.data)),
                resume=resume,
                stop=stop,
            )
            check_step(resume, trainer.session.update_count)
        try:
            for event in trainer.events():
                begins_second = (
                    isinstance(event, PhaseBegan) and trainer.session.schedule.index == 1
                )
                if begins_second and _compares(config):
                    mark_best(run.path, event.update, _FORK)
                observer.take(event, run.path, writer)
                yield event
                if isinstance(event, Stopped):
                    return None
        finally:
            trainer.session.close()
    return trainer


def _compares(config: RunConfig) -> bool:
    return config.evaluation.all_tokens and config.phases[-1].selection == "sampled"


def _train_all_tokens(
    config: RunConfig,
    trainer: Trainer,
    prepared: Prepared,
    stop: Callable[[], bool],
    observer: Observer,
) -> Generator[RunEvent, None, dict[str, dict[str, dict[str, float]]] | None]:
    """Train with every token for as many updates; returns the metrics of its best checkpoint.

    A warm-up selects everything and is shared: the comparison goes on from its end.
    """
    path, first = trainer.path, config.phases[0]
    shared = first.selection == "all"
    fork = load_checkpoint(path, _FORK) if shared and len(config.phases) > 1 else None
    done = 0 if fork is None else fork.step
    phase = PhaseConfig(
        name=ALL_TOKENS, supervised=True, selection="all", steps=trainer.session.update_count - done
    )
    whole = config.model_copy(
        update={
            "phases": (phase,) if fork is None else (first, phase),
            "evaluation": config.evaluation.model_copy(update={"all_tokens": False}),
        }
    )
    place = path / ALL_TOKENS
    with _directory(whole, place, resume=True, overwrite=False) as run:
        start = _latest(place) or (None if fork is None else _fork_start(fork))
        other = yield from _train_phases(whole, run, prepared, local_backend, start, stop, observer)
        if other is None:
            return None
        report = _score(other, whole, prepared)
        run.write_report(_report(other, whole, report, other.wall_seconds))
        return report


def _fork_start(fork: Checkpoint) -> Checkpoint:
    """The end of the warm-up without the policy's optimiser, as the start of another run."""
    tensors = {
        name: value
        for name, value in fork.tensors.items()
        if not name.startswith(("optimizer/policy/", "baseline/"))
    }
    state = dict(fork.state, opened=False, best=None, is_best_here=False, metric_rows=0)
    fresh = {"index": 1, "steps": 0, "best": None, "stale": 0}
    state["session"] = dict(state["session"], schedule=fresh)
    return replace(fork, tensors=tensors, state=state)


def _score(
    trainer: Trainer, config: RunConfig, prepared: Prepared
) -> dict[str, dict[str, dict[str, float]]]:
    """Metrics of dev and test under the run's modes; the models hold the best checkpoint."""
    sampled = config.phases[-1].selection == "sampled"
    modes: list[Mode] = ["thresholded", "sampled", "random"] if sampled else ["all"]
    session = trainer.session
    return {
        split: evaluate(session.models, prepared.split(split), config, modes, device=session.device)
        for split in ("dev", "test")
    }


def _report(
    trainer: Trainer,
    config: RunConfig,
    splits: dict[str, dict[str, dict[str, float]]],
    wall_s: float,
) -> dict[str, Any]:
    classifier, policy = trainer.session.models
    count = parameter_count(classifier, without=classifier.embedding)
    if any(phase.selection == "sampled" for phase in config.phases):
        count += parameter_count(policy)
    best = load_checkpoint(trainer.path, "best")
    return {
        "splits": splits,
        "parameters": count,
        "seed": config.seed,
        "steps": trainer.session.update_count,
        "best_step": best.step,
        "wall_seconds": round(wall_s, 2),
        "examples_per_second": round(trainer.examples_seen / max(trainer.trained_seconds, 1e-9), 2),
    }


def open_models(path: Path | str, which: str | int = "best") -> tuple[RunConfig, Models, Prepared]:
    """A run's configuration, its models with the weights of a checkpoint, and its inputs.

    The third is the prepared dataset without its splits: vocabulary, vectors, tokenizer.

    Raises:
        RssError: no run, no such checkpoint, or files that do not fit each other.
    """
    path = Path(path)
    run = RunDirectory.open(path)
    config = parse_config(run.config, where=str(path / "config.json"))
    # The comparison with every token reads the inputs of the run it belongs to.
    own = run.inputs.is_dir()
    inputs = open_prepared(run.inputs if own else run.path.parent / run.inputs.name)
    models = build_prepared_models(config, inputs)
    checkpoint = load_checkpoint(path, which)
    load_weights(models, checkpoint.tensors, torch.device("cpu"))
    models.classifier.eval()
    return config, models, inputs
