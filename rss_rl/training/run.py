"""A whole run: training, the same model with every token for comparison, and the final report."""

from __future__ import annotations

__all__ = ["ALL_TOKENS", "Finished", "RunEvent", "train"]

import functools
import platform
import subprocess
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rss_rl.components import Trust
from rss_rl.config import PhaseConfig, RunConfig, parse_config
from rss_rl.data.manifest import MANIFEST_FILE
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.envs.task import build_reward_model
from rss_rl.errors import CheckpointError, ConfigError, DataError
from rss_rl.mirror.mirror import open_mirror
from rss_rl.models.attention_choice import settled_attention
from rss_rl.reading.device import autocast_dtype, find_device
from rss_rl.reading.memory import check_room, memory_errors
from rss_rl.reading.models import WEIGHTS, open_data
from rss_rl.reward_models.reward_model import RewardSetup
from rss_rl.runs.checkpoint import (
    BEST,
    checkpoint_steps,
    keep_best,
    keep_tensors,
    load_checkpoint,
    parse_step,
    read_pointer,
    save_checkpoint,
)
from rss_rl.runs.run_directory import (
    ALL_TOKENS,
    CONFIG_FILE,
    REPORT_FILE,
    STATES,
    RunDirectory,
    refuse_changed,
)
from rss_rl.training.attempts import (
    LearnersLost,
    LocalRoles,
    Roles,
    RunContext,
    Scores,
    Trained,
    train_phases,
)
from rss_rl.training.initial_policy import read_initial_policy
from rss_rl.training.learner import POLICY_UPDATE
from rss_rl.training.observer import Observer
from rss_rl.training.recorder import FORK
from rss_rl.training.status_writer import RunProgress
from rss_rl.training.stopping import TimeBudget
from rss_rl.training.trainer import Event, find_best_metric, fork_state
from rss_rl.types import Array
from rss_rl.version import VERSION, installed_version

_ATTENTION = "model.attention"
_LESS = (
    "Lower batch_size or batch_tokens (evaluation.batch_size), model.hidden, or cut long texts with"
    " 'rss-rl data prepare --max-words'; a resumed run starts from its last checkpoint"
)
_LIBRARIES = ("torch", "ray", "gymnasium", "numpy", "pyarrow", "pydantic", "tensorboard")
_SOURCE = Path(__file__).resolve().parents[2]
_GIT_SECONDS = 5


@dataclass(frozen=True)
class Finished:
    """The run is over; `report` is what stands in report.json."""

    path: Path
    report: dict[str, Any]


RunEvent = Event | LearnersLost | Finished


def train(
    config: RunConfig,
    path: Path,
    *,
    roles: Roles | None = None,
    resume: bool = False,
    overwrite: bool = False,
    stop: Callable[[], bool] = lambda: False,
    storage: str | None = None,
    take_over: bool = False,
    budget: TimeBudget | None = None,
) -> Generator[RunEvent, None, None]:
    """Train in the run directory `path`, as a stream of events that ends in `Finished`.

    Args:
        config: of the run; must equal the stored one where `resume` is set.
        roles: makes learner and samplers; None: both in this process.
        resume: from the last checkpoint, where there is one.
        overwrite: replace a run that is there; not one that a live process copies to `storage`.
        stop: asked after each update; True ends the stream with `Stopped` after a checkpoint. Asked
            as well while `storage` does not answer.
        storage: URI or path that gets a copy of the run; with `resume` also where an empty `path`
            gets the run from. take_over: write there though another process seems to.
        budget: of time for all of it, or None. Within it, the comparison with every token makes
            as many updates as the run itself made.

    Raises:
        RssError: any expected failure.
    """
    with memory_errors("to train", _LESS):
        prepared = _check(config, roles)
        mirror = open_mirror(storage, path, config, resume, overwrite, take_over, stop)
    with (
        memory_errors("to train", _LESS),
        closing(mirror),
        nullcontext(_initial_policy(config, path, prepared, resume)) as initial,
        _directory(config, path, resume, overwrite) as run,
        Observer(run.path, RunProgress(config, budget), mirror, storage) as observer,
    ):
        _copy_inputs(run, prepared)
        run.note_provenance(provenance(prepared) | _products(config))
        if resume and (run.path / REPORT_FILE).is_file():
            yield _finished(config, run, observer)
            return
        context = RunContext(prepared, roles or LocalRoles(), stop, observer, budget)
        settled = _settled(config, run)
        trained = yield from train_phases(
            settled, run.path, context, initial_policy=initial, fork=config.compares
        )
        if trained is None:
            return
        scores = trained.scores
        if config.compares:
            compared = yield from _train_all_tokens(config, run, trained, context)
            if compared is None:
                return
            scores = {split: {**compared[split], **modes} for split, modes in scores.items()}
        run.write_report(_report(config, run.path, prepared, trained, scores))
        yield _finished(config, run, observer)


def _finished(config: RunConfig, run: RunDirectory, observer: Observer) -> Finished:
    """The end of a run whose report is written; what only resuming needs goes."""
    if config.checkpoint.keep == "best":
        for part in (run.path, run.path / ALL_TOKENS) if config.compares else (run.path,):
            keep_best(part, WEIGHTS)
    report = run.read_report()
    observer.finished(report["wall_seconds"])
    return Finished(run.path, report)


def _check(config: RunConfig, roles: Roles | None) -> Prepared:
    """Everything that can be refused before anything is written; the data, opened."""
    if roles is None and config.sampler.backend == "ray":
        raise ConfigError(
            "nobody was given who works on a cluster",
            where="sampler.backend",
            remedy="Give roles=RayRoles() after cluster.connect(), or set sampler.backend=local",
        )
    prepared = open_data(config)
    prepared.check()
    if not config.learner.actors:  # they look where they compute
        find_device(config.learner.device)
        check_room(config, prepared)
    find_best_metric(config, prepared)
    _check_reward(config, prepared)
    return prepared


def _initial_policy(
    config: RunConfig, path: Path, prepared: Prepared, resume: bool
) -> dict[str, Array] | None:
    """The policy that a run begins with; None once a checkpoint holds it."""
    begun = resume and checkpoint_steps(path)
    return None if begun else read_initial_policy(config, prepared)


def _products(config: RunConfig) -> dict[str, str]:
    """The dtype of matrix products of a learner within this process."""
    if config.learner.actors:
        return {}
    dtype = autocast_dtype(find_device(config.learner.device), config.learner.precision)
    return {"learner.precision": str(dtype or torch.float32).removeprefix("torch.")}


def provenance(prepared: Prepared) -> dict[str, Any]:
    """Version and commit of rss-rl, versions of its libraries, and the digest of the data; plain
    JSON data."""
    return {
        "rss_rl": VERSION,
        "commit": _commit(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "libraries": {name: installed_version(name) for name in _LIBRARIES},
        "data": {
            "name": prepared.manifest.name,
            "manifest_sha256": prepared.manifest.digest(),
        },
    }


@functools.cache
def _commit() -> str | None:
    """Commit of the checkout that runs, with `-dirty` if files differ; None outside a checkout."""
    if not (_SOURCE / ".git").exists():
        return None
    how = "--always", "--dirty", "--abbrev=40", "--exclude=*"
    command = ["git", "-C", str(_SOURCE), "describe", *how]
    try:
        described = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None


def _check_reward(config: RunConfig, prepared: Prepared) -> None:
    """A reward model of its own is made once here, to hear what is wrong with it."""
    if not config.reward.model.can("classifier"):
        words = prepared.vocabulary.words
        setup = RewardSetup(prepared.labels, prepared.sentences, words=words)
        build_reward_model(config.reward, setup)


def _directory(
    config: RunConfig,
    path: Path,
    resume: bool,
    overwrite: bool,
    settled: Mapping[str, str] | None = None,
) -> RunDirectory:
    """The locked directory of a run; a new one keeps the choices that are `settled`."""
    resolved = config.model_dump(mode="json")
    if not (resume and (path / CONFIG_FILE).exists()):
        settled = _choices(config) if settled is None else settled
        return RunDirectory.create(path, resolved, overwrite=overwrite, settled=settled)
    run = RunDirectory.open(path, lock=True)
    try:
        refuse_changed(run.config, resolved, str(path))
    except CheckpointError:
        run.close()
        raise
    return run


def _choices(config: RunConfig) -> dict[str, str]:
    """What a configuration leaves to the machine, chosen for the whole run."""
    auto = config.model.attention == "auto"
    return {_ATTENTION: settled_attention(config.model)} if auto else {}


def _settled(config: RunConfig, run: RunDirectory) -> RunConfig:
    """The configuration with the choices of a run's start, as all its processes are given it."""
    if config.model.attention != "auto":
        return config
    tree = config.model_dump(mode="json")
    tree["model"]["attention"] = run.settled.get(_ATTENTION, "auto")
    # It names the components that the user named.
    return parse_config(tree, where=str(run.path / CONFIG_FILE), trust=Trust.of(tree))


def _copy_inputs(run: RunDirectory, prepared: Prepared) -> None:
    """Keep with the run what its weights depend on.

    Raises:
        DataError: a run that is resumed began with other data.
    """
    begun = (run.inputs / MANIFEST_FILE).is_file()
    if begun and prepared.manifest != open_prepared(run.inputs).manifest:
        raise DataError(
            "the data are not those the run began with",
            where=prepared.location,
            remedy="Prepare them as they were, or start a new run in another directory",
        )
    if (states := prepared.states_digest()) is not None:
        if run.settled.get(STATES, states) != states:
            raise DataError(
                "the states of tokens are not those the run began with",
                where=prepared.location,
                remedy="Encode the data as they were, or start a new run in another directory",
            )
        run.settle(STATES, states)
    for name in (MANIFEST_FILE, *prepared.manifest.word_files()):
        run.copy_in(prepared.folder / name)


def _train_all_tokens(
    config: RunConfig, main: RunDirectory, trained: Trained, context: RunContext
) -> Generator[RunEvent, None, Scores | None]:
    """Train with every token for as many updates; returns the scores of its best checkpoint.

    A warm-up selects everything and is shared: the comparison continues from its end.
    """
    first = config.phases[0]
    shared = first.selection == "all" and len(config.phases) > 1
    done = parse_step(read_pointer(main.path, FORK)) if shared else 0
    phase = PhaseConfig(
        name=ALL_TOKENS, supervised=True, selection="all", steps=trained.updates - done
    )
    reads_all = config.model_copy(
        update={
            "phases": (first, phase) if shared else (phase,),
            "batch_lengths": config.settled_lengths,
            "evaluation": config.evaluation.model_copy(update={"all_tokens": False}),
            "reward": config.reward.model_copy(
                update={
                    "target_share": None,
                    "share_schedule": 0.0,
                    "sparsity_cost": config.reward.fixed_cost,
                }
            ),
        }
    )
    with _directory(reads_all, main.path / ALL_TOKENS, True, False, main.settled) as run:
        best = config.checkpoint.keep == "best"
        # Before the fork, so that there are never more than three sets of optimisers.
        apart = not shared or read_pointer(main.path, BEST) != read_pointer(main.path, FORK)
        if best and apart:
            keep_tensors(main.path, BEST, WEIGHTS)
        if shared and not checkpoint_steps(run.path):
            _fork(main.path, run.path)
        if best and shared:
            keep_tensors(main.path, FORK, WEIGHTS)
        budget = context.budget
        left = None if budget is None else TimeBudget(reads_all, budget.left_s)
        alone = replace(context, budget=left)
        other = yield from train_phases(_settled(reads_all, main), run.path, alone)
        if other is None:
            return None
        run.write_report(_report(reads_all, run.path, context.prepared, other, other.scores))
        return other.scores


def _fork(main: Path, other: Path) -> None:
    """The end of the warm-up without the policy's optimiser, as the start of another run."""
    fork = load_checkpoint(main, FORK)
    tensors = {
        name: value for name, value in fork.tensors.items() if not name.startswith(POLICY_UPDATE)
    }
    save_checkpoint(other, fork.step, tensors, fork_state(fork.state), keep_last=1)


def _report(
    config: RunConfig, path: Path, prepared: Prepared, trained: Trained, scores: Scores
) -> dict[str, Any]:
    best = load_checkpoint(path, "best")
    counted = ["classifier/"]
    if any(phase.selection == "sampled" for phase in config.phases):
        counted.append("policy/")
    return {
        "splits": scores,
        "in_train": {
            split: {"rows": info.in_train, "share": info.in_train / info.rows}
            for split, info in prepared.manifest.splits.items()
            if split in scores
        },
        "parameters": sum(
            value.size
            for name, value in best.tensors.items()
            if name.startswith(tuple(counted)) and not name.startswith("classifier/embedding.")
        ),
        "seed": config.seed,
        "steps": trained.updates,
        "best_step": best.step,
        "wall_seconds": round(trained.wall_s, 2),
        "examples_per_second": round(trained.examples_per_second, 2),
    }
