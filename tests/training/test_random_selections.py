"""Selections of a random share: how they are distributed, keyed and mixed, and runs with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_batches import random_batch

from rss_rl.config import PhaseConfig, RunConfig, parse_config
from rss_rl.data.batch_order import BatchOrder
from rss_rl.data.store import open_prepared
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.logs.metrics import read_metrics
from rss_rl.models.inputs import tensor_batch
from rss_rl.reading.models import build_prepared_models
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import train
from rss_rl.training.selections import random_selections
from rss_rl.training.trainer import Evaluated
from rss_rl.types import ROLES, Batch

CPU = torch.device("cpu")
FULL = PhaseConfig(name="parts", supervised=True, selection="uniform_share", steps=4)


def long_batch(examples: int = 600, tokens: int = 200) -> Batch:
    valid = np.ones((examples, tokens), bool)
    ids = np.ones((examples, tokens), np.int64)
    return Batch(np.arange(examples), (ids, ids), (valid, valid), np.zeros(examples, np.int64))


def test_every_share_is_as_likely() -> None:
    drawn = random_selections(0, 3, long_batch(), ROLES, 1.0, None, CPU)
    shares = np.stack([s.numpy().mean(-1) for s in drawn], -1).reshape(600, -1)  # slots, roles
    for share in shares.T:
        found, _ = np.histogram(share, bins=5, range=(0, 1))
        assert (np.abs(found / 600 - 0.2) < 0.06).all()
    # Sentences and roles have shares of their own.
    assert np.abs(np.corrcoef(shares.T) - np.eye(4)).max() < 0.15


def test_one_bit_decides_both_roles_where_they_share_it() -> None:
    for selection in random_selections(0, 3, long_batch(), 1, 1.0, None, CPU):
        assert (selection[:, 0] == selection[:, 1]).all()
    apart = random_selections(0, 3, long_batch(), ROLES, 1.0, None, CPU)[0]
    assert (apart[:, 0] != apart[:, 1]).float().mean() > 0.2


@given(seed=st.integers(0, 50), update=st.integers(0, 50))
def test_a_row_draws_the_same_in_any_batch(seed: int, update: int) -> None:
    batch = random_batch(2, seed)
    own = [torch.from_numpy(np.repeat(valid[:, None], 2, 1)) for valid in batch.valid]
    for sampled in (None, own):
        few = None if sampled is None else [bits[[4, 1]] for bits in sampled]
        whole = random_selections(seed, update, batch, ROLES, 0.5, sampled, CPU)
        part = random_selections(seed, update, batch.take(np.array([4, 1])), ROLES, 0.5, few, CPU)
        for valid, *both in zip(batch.valid, whole, part, strict=True):
            assert torch.equal(both[0][[4, 1]], both[1])
            assert not (both[0].numpy() & ~valid[:, None]).any()


def test_a_share_of_the_examples_is_replaced() -> None:
    batch = long_batch()
    everyone = random_selections(0, 5, batch, ROLES, 0.3, None, CPU)
    for dtype in (torch.bool, torch.float32):
        own = [torch.ones(600, 2, 200, dtype=dtype) for _ in range(2)]
        mixed = random_selections(0, 5, batch, ROLES, 0.3, own, CPU)
        replaced = ~mixed[0].bool().flatten(1).all(1)
        assert replaced.float().mean() == pytest.approx(0.3, abs=0.06)
        for slot, random in enumerate(everyone):
            assert mixed[slot].dtype == dtype
            wanted = torch.where(replaced[:, None, None], random, True)
            assert torch.equal(mixed[slot].bool(), wanted)


def parts(config: RunConfig, policy: str = "rss") -> RunConfig:
    """The tiny run with a phase of parts, and parts among what co-training reads."""
    tree = config.model_dump(mode="json")
    warm_up, frozen, last = tree["phases"]
    tree["phases"] = [warm_up, FULL.model_dump(), frozen, last | {"mixed_share": 0.5}]
    tree["policy"] = {"name": policy, "options": {"hidden": 5}}
    tree["evaluation"]["all_tokens"] = False
    return parse_config(tree, where="test")


def test_a_run_through_gates_that_was_stopped_equals_one_that_never_was(
    tiny_config: RunConfig, tmp_path: Path
) -> None:
    gated = {"model": {**tiny_config.model.model_dump(), "encoder": "source2token"}}
    tree = parts(tiny_config, "gumbel").model_dump(mode="json")
    config = parse_config(tree | gated, where="test")
    list(train(config, tmp_path / "whole"))
    for after in (6, 7):  # within the parts, and within co-training
        list(train(config, tmp_path / "cut", resume=True, stop=_after(after)))
    list(train(config, tmp_path / "cut", resume=True))
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    found, wanted = (load_checkpoint(tmp_path / name, "latest") for name in ("cut", "whole"))
    for name, value in wanted.tensors.items():
        assert np.array_equal(found.tensors[name], value, equal_nan=True), name


def test_a_classifier_settles_on_what_is_kept_at_test_time(
    tiny_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a last phase with the policy fixed; a run that is stopped on the way changes nothing."""
    tree = parts(tiny_config).model_dump(mode="json")
    settle = {"name": "settle", "supervised": True, "selection": "thresholded", "steps": 3}
    tree["phases"] = [*tree["phases"], settle]
    config = parse_config(tree, where="test")
    read: list[list[torch.Tensor]] = []
    learn = SupervisedLearner.gradients

    def noted(self: SupervisedLearner, batch: Any, selections: Any, **how: Any) -> Any:
        read.append(selections)
        return learn(self, batch, selections, **how)

    monkeypatch.setattr(SupervisedLearner, "gradients", noted)
    for after in (6, 7, 2):  # within the parts, co-training, and the last phase
        list(train(config, tmp_path / "cut", resume=True, stop=_after(after)))
    begun = load_checkpoint(tmp_path / "cut", "latest")
    read.clear()
    list(train(config, tmp_path / "cut", resume=True))
    events = list(train(config, tmp_path / "whole"))
    scored = {e.phase: [*e.metrics] for e in events if isinstance(e, Evaluated)}
    assert scored["settle"] == ["thresholded"]  # so is its best checkpoint chosen
    ended, whole = (load_checkpoint(tmp_path / name, "latest") for name in ("cut", "whole"))
    for name, value in ended.tensors.items():
        assert np.array_equal(whole.tensors[name], value, equal_nan=True), name
        if name.startswith("policy/"):
            assert np.array_equal(begun.tensors[name], value), name
    prepared = open_prepared(config.data)
    models = build_prepared_models(config, prepared)
    named = {f"policy/{name}": tensor for name, tensor in models.policy.named_parameters()}
    named |= {f"classifier/{name}": t for name, t in models.classifier.named_parameters()}
    with torch.no_grad():
        for name, tensor in named.items():
            tensor.copy_(torch.from_numpy(begun.tensors[name]))
    order = BatchOrder(prepared.split("train"), config.batch_size, config.seed)
    batch = tensor_batch(prepared.split("train").batch(order.rows(begun.step)), CPU)
    with models.evaluating(), torch.no_grad():
        for found, valid, bits in zip(
            models.distributions(batch), batch.valid, read[0], strict=True
        ):
            chances = found.probs
            assert torch.equal(bits, (chances > 0.5) & valid[:, None])


def _after(updates: int) -> Any:
    asked = iter(range(updates))
    return lambda: next(asked, None) is None


def losses(run: Path) -> dict[int, float]:
    """The classifier's of each update in which it learnt."""
    rows = read_metrics(run).to_pylist()
    return {row["step"]: row["value"] for row in rows if row["tag"] == "train/loss"}
