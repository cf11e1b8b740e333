"""Learners in processes of their own learn what one learner would, and none outlives another."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import group_worker
import numpy as np
import pytest
import small
import torch
from torch import nn

from rss_rl.errors import LearnerError
from rss_rl.learners.group import ALONE, ProcessGroup
from rss_rl.models.dropout import keyed_dropout

POLICIES: tuple[dict[str, Any], ...] = ({}, {"context": "gru"}, {"name": "iterative"})


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def ranks(size: int, folder: Path, mode: str) -> Iterator[list[BaseProcess]]:
    """`run_rank` in `size` processes, which share one import of torch; what is left is killed."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([group_worker.__name__])
    port = free_port()
    started: list[BaseProcess] = [
        processes.Process(target=group_worker.run_rank, args=(rank, size, port, folder, mode))
        for rank in range(size)
    ]
    # The server that imports torch once for all finds modules by its environment alone.
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        for process in started:
            process.start()
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.join()


def said_by(process: BaseProcess, rank: int, folder: Path) -> str:
    process.join(100)
    assert process.exitcode == 0
    return (folder / f"said-{rank}").read_text()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, np.ndarray]]]:
    """What two ranks learnt in each scenario."""
    folder = tmp_path_factory.mktemp("group")
    with ranks(2, folder, "train") as processes:
        for rank, process in enumerate(processes):
            # Where one of them meets a NaN, all refuse the update.
            assert said_by(process, rank, folder) == "the policy loss is nan, weights kept"
    return {
        name: [dict(np.load(folder / f"{name}-{rank}.npz")) for rank in range(2)]
        for name in group_worker.SCENARIOS
    }


def difference(alone: dict[str, np.ndarray], learnt: dict[str, np.ndarray]) -> dict[str, float]:
    """Largest difference of a rank from one learner alone, of the weights and of the statistics."""
    assert learnt.keys() == alone.keys()
    errors = {
        name: float(np.abs(learnt[name] - value).max(initial=0.0)) for name, value in alone.items()
    }
    return {"statistics": errors.pop("statistics"), "weights": max(errors.values())}


@pytest.mark.parametrize("scenario", group_worker.SCENARIOS)
def test_two_processes_learn_what_one_does(
    trained: dict[str, list[dict[str, np.ndarray]]], scenario: str
) -> None:
    alone = group_worker.train(ALONE, scenario)
    if scenario == "leave-one-out":
        assert np.isnan(alone.pop("baseline"))
        assert all(np.isnan(learnt.pop("baseline")) for learnt in trained[scenario])
    first, second = trained[scenario]
    largest = difference(alone, first)
    assert largest["weights"] < 1e-8
    assert largest["statistics"] < 1e-8
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, err_msg=name)


@pytest.mark.parametrize("mode", ["kill", "hang"])
def test_a_learner_that_dies_or_hangs_is_an_error_to_the_others(tmp_path: Path, mode: str) -> None:
    with ranks(2, tmp_path, mode) as (first, _):
        said = said_by(first, 0, tmp_path)
    seconds, _, message = said.partition(" s, update 2: ")
    assert "learner 0 of 2 lost another one" in message, said
    # A death is seen at once, a hang at the end of the timeout.
    timeout = group_worker.TIMEOUT_S[mode]
    assert float(seconds) < timeout + 5
    assert (float(seconds) < timeout / 2) is (mode == "kill")


def test_a_group_that_does_not_gather_is_an_error_in_time() -> None:
    began, place = time.monotonic(), {"address": "127.0.0.1", "port": free_port()}
    with pytest.raises(LearnerError, match="learner 0 of 2 found no group") as caught:
        ProcessGroup(0, 2, **place, device=torch.device("cpu"), timeout_s=1.0)
    assert "within 1 s" in caught.value.remedy
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("settings", small.VARIANTS.values(), ids=small.VARIANTS)
@pytest.mark.parametrize(("rows", "width"), [(3, 4), (0, 4), (0, 0)])
def test_every_parameter_has_a_gradient_where_nothing_is_selected(
    settings: dict[str, Any], rows: int, width: int
) -> None:
    """A shard may be empty, and DistributedDataParallel waits for every parameter's gradient."""
    model = small.classifier(dropout=0.3, **settings).train()
    tokens, valid = (list(part) for part in zip(*[small.sentences(4, 2, 3)] * 2, strict=True))
    tokens, valid = [t[:rows, :width] for t in tokens], [v[:rows, :width] for v in valid]
    nothing = torch.zeros(rows, 2, width, dtype=torch.bool)
    with keyed_dropout(small.keys(0, rows)):
        logits = model(tokens, valid, [nothing] * 2)
    model.losses(logits, torch.zeros(rows, dtype=torch.int64)).sum().backward()
    policies = nn.ModuleList(small.policy(**settings) for settings in POLICIES)
    inputs = small.of_vectors(model.embedding(tokens[0]).detach(), valid[0])
    for policy in policies:
        evaluated = policy(inputs).evaluate(nothing.expand(3, -1, -1, -1))  # type: ignore[operator]
        (evaluated.log_prob.sum() + evaluated.entropy.sum()).backward()
    for name, parameter in (*model.named_parameters(), *policies.named_parameters()):
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
