"""The environment of a run, of its configuration, or of examples and a reward model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gymnasium.vector import AutoresetMode

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig
from rss_rl.envs.task import TASK, SelectionTask, longest_sentence, make_task
from rss_rl.envs.token_selection import TokenSelectionEnv
from rss_rl.envs.vector import TokenSelectionVectorEnv
from rss_rl.errors import ConfigError, nearest
from rss_rl.learners.share_control import ShareController
from rss_rl.reading.models import build_prepared_models, open_data
from rss_rl.reading.trained_runs import data_of, open_models
from rss_rl.rollouts.sampler import run_task
from rss_rl.runs.checkpoint import load_checkpoint


def find_task(
    task: SelectionTask | None = None,
    *,
    run: Path | str | RunConfig | None = None,
    split: str = "train",
    which: str | int = "best",
    trust: Trust = NOTHING,
    **others: Any,
) -> SelectionTask:
    """The task of an environment.

    Args:
        task: given whole; then nothing else may be.
        run: the directory of a run, with the classifier of one of its checkpoints and lambda as it
            stood there; or a configuration, whose classifier is untrained.
        split: of the run's data.
        which: checkpoint of a run: `best`, `latest` or a step.
        trust: in components that the run names as package.module:OBJECT.
        others: without a run, see `rss_rl.envs.task.make_task`.

    Raises:
        RssError: no run, no such checkpoint or split, data that cannot be read or are not those of
            the run, or settings that do not fit together.
    """
    beside = others if task is None or run is None else {"run": run} | others
    if beside and (task is not None or run is not None):
        name, owner = next(iter(beside)), "run" if task is None else "task"
        raise ConfigError(
            f"'{name}' is not taken beside {owner}, which has all of it"
            f"{nearest(name, ['split', 'which', 'trust', 'render_mode'])}",
            where=TASK,
            remedy="Leave it out, or give examples and a reward model in place of a run",
        )
    if task is not None:
        return task
    if run is None:
        return make_task(split=split, **others)
    if isinstance(run, RunConfig):
        config, prepared = run, open_data(run)
        models = build_prepared_models(config, prepared)
        share = ShareController(config.reward)
    else:
        config, models, inputs = open_models(run, which, trust)
        prepared = data_of(config, inputs, trust)
        share = ShareController(config.reward)
        share.load_state_dict(load_checkpoint(Path(run), which).state["share"])
    built = run_task(config, models, prepared.split(split), prepared.vocabulary.words)
    return replace(
        built,
        price=share.costs,
        max_len=longest_sentence(prepared),
        vocabulary_size=len(prepared.vocabulary),
    )


def make_env(
    task: SelectionTask | None = None, *, render_mode: str | None = None, **settings: Any
) -> TokenSelectionEnv:
    """`TokenSelectionEnv` of a task; for the settings see `find_task`."""
    return TokenSelectionEnv(find_task(task, **settings), render_mode)


def make_vector_env(
    num_envs: int = 1,
    task: SelectionTask | None = None,
    *,
    render_mode: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    **settings: Any,
) -> TokenSelectionVectorEnv:
    """`TokenSelectionVectorEnv` of a task; for the settings see `find_task`."""
    shared = find_task(task, **settings)
    return TokenSelectionVectorEnv(num_envs, shared, render_mode, autoreset_mode)
