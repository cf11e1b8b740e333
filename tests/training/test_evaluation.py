"""Evaluation against slow twins: shares, rationale scores, the random selection, the modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest
import torch

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.envs.task import SelectionTask
from rss_rl.models.inputs import tensor_batch
from rss_rl.reading.models import Models, build_prepared_models
from rss_rl.reward_models.likelihood import ClassifierReward
from rss_rl.training.evaluation import Mode, evaluate
from rss_rl.types import Array, Batch

_CPU = torch.device("cpu")


@pytest.fixture
def models(tiny_config: RunConfig, tiny: Prepared) -> Models:
    """Untrained, with probabilities pushed apart so that the threshold keeps some tokens."""
    built = build_prepared_models(tiny_config, tiny)
    with torch.no_grad():
        for parameter in built.policy.parameters():
            parameter.mul_(6.0)
    return built


def _scores(
    models: Models, config: RunConfig, tiny: Prepared, modes: list[str] | None = None
) -> dict[str, dict[str, float]]:
    return evaluate(models, tiny.split("dev"), config, modes or get_args(Mode), device=_CPU)  # type: ignore[arg-type]


def test_thresholded_metrics_equal_a_loop_over_single_examples(
    models: Models, tiny_config: RunConfig, tiny: Prepared
) -> None:
    dev = tiny.split("dev")
    hits, losses, kept, found, chosen, wanted = [], [], [], 0, 0, 0
    odds: dict[int, list[float]] = {0: [], 1: []}  # of class 1, by the gold class
    models.classifier.eval()
    for row in range(len(dev)):
        batch = dev.batch([row])
        tensors = tensor_batch(batch, _CPU)
        selections = []
        with torch.no_grad():
            for inputs in models.policy_inputs(tensors):
                selections.append(models.policy(inputs).probs > 0.5)
            logits = models.classifier(tensors.tokens, tensors.valid, selections)
        hits.append(int(logits.argmax()) == int(batch.labels[0]))
        odds[int(batch.labels[0])].append(float(logits[0, 1] - logits[0, 0]))
        losses.append(-float(torch.log_softmax(logits, -1)[0, batch.labels[0]]))
        unions = [(s[0, 0] | s[0, 1]).numpy() for s in selections]
        assert batch.rationale is not None
        kept.append(sum(u.sum() for u in unions) / sum(len(u) for u in unions))
        found += sum(int((u & r[0]).sum()) for u, r in zip(unions, batch.rationale, strict=True))
        chosen += sum(int(u.sum()) for u in unions)
        wanted += sum(int(r.sum()) for r in batch.rationale)
    scores = _scores(models, tiny_config, tiny)["thresholded"]
    assert 0.05 < scores["kept"] < 0.95
    assert scores["accuracy"] == pytest.approx(np.mean(hits))
    assert scores["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert scores["majority_accuracy"] == max(len(odds[0]), len(odds[1])) / len(dev)
    ordered = [above > below for above in odds[1] for below in odds[0]]
    assert scores["roc_auc"] == pytest.approx(np.mean(ordered), abs=0.01)
    assert 0 <= scores["macro_f1"] <= 1
    assert scores["kept"] == pytest.approx(np.mean(kept), rel=1e-6)
    precision, recall = found / chosen, found / wanted
    assert scores["rationale_precision"] == pytest.approx(precision)
    assert scores["rationale_recall"] == pytest.approx(recall)
    assert scores["rationale_f1"] == pytest.approx(2 * precision * recall / (precision + recall))


def test_every_token_is_kept_in_mode_all(
    models: Models, tiny_config: RunConfig, tiny: Prepared
) -> None:
    scores = _scores(models, tiny_config, tiny, ["all"])["all"]
    assert scores["kept"] == scores["heads_kept"] == scores["dependents_kept"] == 1.0
    assert scores["rationale_recall"] == 1.0
    # Keeping everything leaves nothing to chance.
    assert scores["rationale_f1_random"] == scores["rationale_f1"]


def test_the_random_selection_has_the_same_shares_at_other_tokens(
    models: Models, tiny_config: RunConfig, tiny: Prepared
) -> None:
    scores = _scores(models, tiny_config, tiny)
    for share in ("kept", "heads_kept", "dependents_kept"):
        assert scores["random"][share] == pytest.approx(scores["thresholded"][share], rel=1e-6)
    assert scores["random"]["loss"] != scores["thresholded"]["loss"]
    assert scores["thresholded"]["rationale_f1_random"] == scores["random"]["rationale_f1"]


def test_the_sampled_mode_keeps_what_the_probabilities_promise(
    models: Models, tiny_config: RunConfig, tiny: Prepared
) -> None:
    many = tiny_config.model_copy(
        update={"evaluation": tiny_config.evaluation.model_copy(update={"selections": 400})}
    )
    batch = tiny.split("dev").batch(range(20))
    tensors = tensor_batch(batch, _CPU)
    heads = real = 0.0
    with torch.no_grad():
        for inputs in models.policy_inputs(tensors):
            chance = models.policy(inputs).probs
            heads, real = heads + chance[:, 0].sum(-1), real + inputs.valid.sum(-1)
    scores = _scores(models, many, tiny, ["sampled"])["sampled"]
    assert scores["heads_kept"] == pytest.approx(float((heads / real).mean()), abs=0.01)


def test_equal_calls_agree_and_leave_the_modules_as_they_were(
    models: Models, tiny_config: RunConfig, tiny: Prepared
) -> None:
    models.classifier.train()
    before = torch.get_rng_state()
    first, again = (_scores(models, tiny_config, tiny) for _ in range(2))
    assert first == again
    assert models.classifier.training
    assert torch.equal(before, torch.get_rng_state())
    reseeded = tiny_config.model_copy(update={"seed": 5})
    assert _scores(models, reseeded, tiny)["sampled"] != first["sampled"]


class Negated(ClassifierReward):
    """Minus the inherited score."""

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        return {name: -each for name, each in super().score(batch, selections).items()}


@pytest.mark.parametrize("kind", ["function", "subclass"])
def test_another_reward_is_what_evaluation_reports(
    models: Models, tiny_config: RunConfig, tiny: Prepared, kind: str
) -> None:
    dev = tiny.split("dev")
    loss = _scores(models, tiny_config, tiny, ["all"])["all"]["loss"]
    score: Any = lambda batch, selections: np.full(len(batch), 5.0)  # noqa: E731
    model, wanted = (score, 5.0) if kind == "function" else (Negated(models.classifier), loss)
    task = SelectionTask(dev, model, tiny_config.reward)
    found = evaluate(models, dev, tiny_config, ["all"], device=_CPU, task=task)["all"]
    everything = 2 * tiny_config.reward.sparsity_cost * dev.sentences
    assert found["reward"] == pytest.approx(wanted - everything)
    assert found["loss"] == loss
