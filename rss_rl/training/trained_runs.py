"""A trained run, opened: its models with the weights of a checkpoint, and its environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import AutoresetMode

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.envs.task import TASK, SelectionTask, longest_sentence, make_task
from rss_rl.envs.token_selection import TokenSelectionEnv
from rss_rl.envs.vector import TokenSelectionVectorEnv
from rss_rl.errors import ConfigError, DataError, nearest
from rss_rl.learners.share_control import ShareController
from rss_rl.models.attention_choice import loadable_attention
from rss_rl.rollouts.run_models import (
    Models,
    build_prepared_models,
    load_weights,
    open_data,
    run_task,
)
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.training.memory import memory_errors


@memory_errors("for the model", "Use a machine with more, or end other programs")
def open_models(
    path: Path | str, which: str | int = "best", trust: Trust = NOTHING
) -> tuple[RunConfig, Models, Prepared]:
    """A run's configuration, its models with the weights of a checkpoint, and its inputs.

    The third is the prepared dataset without its splits: vocabulary, vectors, tokenizer.

    Args:
        trust: in components that the run names as package.module:OBJECT.

    Raises:
        RssError: no run, no such checkpoint, or files that do not fit each other.
    """
    path = Path(path)
    run = RunDirectory.open(path)
    config = run.parsed_config(trust)
    # The comparison with every token reads the inputs of the run it belongs to.
    own = run.inputs.is_dir()
    inputs = open_prepared(run.inputs if own else run.path.parent / run.inputs.name)
    usable = config.model_copy(update={"model": loadable_attention(config.model)})
    models = build_prepared_models(usable, inputs)
    checkpoint = load_checkpoint(path, which)
    load_weights(models, checkpoint.tensors, torch.device("cpu"))
    models.classifier.eval()
    models.policy.eval()
    return config, models, inputs


def data_of(config: RunConfig, inputs: Prepared) -> Prepared:
    """A run's data with their splits, of which it keeps the `inputs`.

    Raises:
        DataError: they cannot be read, or have been prepared again since.
    """
    prepared = open_data(config)
    if prepared.manifest != inputs.manifest:
        raise DataError(
            "the data are not those the run was trained on",
            where=config.data,
            remedy="Prepare them as they were, or train again",
        )
    return prepared


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
        name, whole = next(iter(beside)), "run" if task is None else "task"
        raise ConfigError(
            f"'{name}' is not taken beside {whole}, which has all of it"
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
        prepared = data_of(config, inputs)
        share = ShareController(config.reward)
        share.load_state_dict(load_checkpoint(Path(run), which).state["share"])
    found = run_task(config, models, prepared.split(split), prepared.vocabulary.words)
    return replace(
        found,
        charged=share.costs,
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
    found = find_task(task, **settings)
    return TokenSelectionVectorEnv(num_envs, found, render_mode, autoreset_mode)
