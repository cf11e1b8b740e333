"""A run's selections against people's, beside a loop over single examples and texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from invoking import invoke
from rationale_twins import (
    curve_area,
    iou_f1,
    people_similarity,
    ranked,
    roc,
    token_scores,
)

from rss_rl.config import EncoderChoice, RunConfig
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, RawExample, Source
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import ConfigError, DataError
from rss_rl.models.inputs import tensor_batch
from rss_rl.reading.models import Models, build_prepared_models
from rss_rl.results.agreement import (
    score_agreement,
)
from rss_rl.training.run import train
from rss_rl.types import LabelSpec

_CPU = torch.device("cpu")
CHOICES = ("policy", "top-k", "random")
LINEAR = ("linear weights", "linear weights, averaged over neighbours")


def read_marked(split: str) -> Iterator[RawExample | BadRow]:
    """Texts of 3 to 14 words that two people marked, not alike; nobody marked the last one."""
    draw = np.random.default_rng(len(split))
    for row in range(12):
        # No word twice: equal chances of two would be ranked by rounding errors.
        words = tuple(f"w{n}" for n in draw.permutation(16)[: draw.integers(3, 15)])
        bits = draw.integers(0, 4, len(words))
        bits[0], bits[1], bits[2] = 1, 2, 0
        bits *= row < 11
        label = ("bad", "good")[row % 2]
        people = tuple(bits.tolist())
        yield RawExample(
            f"{row}", (words,), label, (tuple(b > 0 for b in people),), annotations=people
        )


MARKED = Source(
    "marked",
    1,
    LabelSpec("classes", ("bad", "good")),
    {"train": (), "dev": (), "test": ()},
    read_marked,
)


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    out = tmp_path_factory.mktemp("marked") / "out"
    prepare(MARKED, out, dim=6)
    return open_prepared(out)


def spread_models(config: RunConfig, prepared: Prepared) -> Models:
    """Untrained, with probabilities and logits pushed apart so that the threshold keeps some."""
    models = build_prepared_models(config, prepared)
    with torch.no_grad():
        for parameter in (*models.policy.parameters(), *models.classifier.head.parameters()):
            parameter.mul_(6.0)
    models.classifier.eval()
    return models


def with_(config: RunConfig, section: str, **values: Any) -> RunConfig:
    part = getattr(config, section).model_copy(update=values)
    return config.model_copy(update={section: part})


def read(models: Models, batch: Any, kept: list[Any] | None) -> np.ndarray[Any, Any]:
    """Probabilities of one example, of the kept words alone: [N] of both roles, or [2, N]."""
    tensors = tensor_batch(batch, _CPU)
    roles = [np.broadcast_to(np.array(bits), (2, np.shape(bits)[-1])) for bits in kept or ()]
    chosen = None if kept is None else [torch.from_numpy(bits.copy())[None] for bits in roles]
    with torch.no_grad():
        logits = models.classifier(tensors.tokens, tensors.valid, chosen)
    return np.asarray(torch.softmax(logits.double(), -1)[0].numpy())


def highest(chances: list[float], share: float) -> list[bool]:
    count = min(len(chances), max(1, round(share * len(chances))))
    best = sorted(range(len(chances)), key=lambda i: -chances[i])[:count]
    return [i in best for i in range(len(chances))]


def chances_of(models: Models, batch: Any) -> list[Any]:
    """Of each slot, [2, N]."""
    tensors = tensor_batch(batch, _CPU)
    with torch.no_grad():
        return [models.policy(each).probs[0].numpy() for each in models.policy_inputs(tensors)]


def faithfulness(
    models: Models, batch: Any, kept: list[list[bool]], chosen: list[Any]
) -> dict[str, float]:
    def without(selection: list[list[bool]]) -> list[list[bool]]:
        return [[not bit for bit in bits] for bits in selection]

    label = int(batch.labels[0])
    whole, alone = read(models, batch, None), read(models, batch, chosen)
    rest, best = read(models, batch, without(kept)), int(whole.argmax())
    return {
        "accuracy": alone.argmax() == label,
        "accuracy_all": best == label,
        "accuracy_rest": rest.argmax() == label,
        "comprehensiveness": whole[best] - rest[best],
        "sufficiency": whole[best] - alone[best],
        "kept": sum(map(sum, kept)) / sum(map(len, kept)),
    }


def of_people(batch: Any, rank: list[float], kept: list[bool]) -> dict[str, float]:
    maps = [[bool(bits >> k & 1) for bits in batch.annotations[0].tolist()] for k in range(2)]
    return {
        "similarity": np.mean([roc(rank, one) for one in maps]).item(),
        "annotator_f1": np.mean([token_scores(kept, one)[2] for one in maps]).item(),
        "people_similarity": people_similarity(maps),
        "people_f1": np.mean([token_scores(a, b)[2] for a, b in (maps, maps[::-1])]).item(),
    }


def slow_scores(models: Models, split: Any, share: float | None) -> dict[str, float]:
    """Of the policy (share None) or of the tokens of highest probability."""
    values: list[dict[str, float]] = []
    texts: list[dict[str, float]] = []
    pairs: list[tuple[list[bool], list[bool]]] = []
    for row in range(len(split)):
        batch = split.batch([row])
        chances = chances_of(models, batch)
        ranks = [both.max(0).astype(float).round(5).tolist() for both in chances]
        kept = [
            (both.max(0) > 0.5).tolist() if share is None else highest(rank, share)
            for both, rank in zip(chances, ranks, strict=True)
        ]
        chosen = [both > 0.5 for both in chances] if share is None else kept
        values.append(faithfulness(models, batch, kept, chosen))
        if batch.annotations is not None and batch.annotations.any():
            values[-1] |= of_people(batch, ranks[0], kept[0])
        for bits, rank, wanted in zip(kept, ranks, batch.rationale, strict=True):
            truth = wanted[0].tolist()
            if not any(truth):
                continue
            pairs.append((bits, truth))
            names = ("token_precision", "token_recall", "token_f1")
            texts.append(dict(zip(names, token_scores(bits, truth), strict=True)))
            texts[-1]["auprc"] = curve_area(rank, truth)
            texts[-1] |= ranked(rank, truth)
    means = {
        name: float(np.mean([found[name] for found in each if name in found]))
        for each in (values, texts)
        for name in each[0]
    }
    return means | {"iou_f1": iou_f1(pairs)}


@pytest.mark.parametrize("data", ["tiny", "marked"])
def test_measures_equal_a_loop_over_single_examples(
    request: pytest.FixtureRequest, tiny_config: RunConfig, data: str
) -> None:
    prepared = request.getfixturevalue(data)
    models = spread_models(tiny_config, prepared)
    split = prepared.split("test")
    scores = score_agreement(models, split, tiny_config, device=_CPU)
    assert tuple(scores) == CHOICES
    assert 0.05 < scores["policy"]["kept"] < 0.95
    assert scores["policy"] == pytest.approx(slow_scores(models, split, None), abs=1e-6)
    equal = scores["policy"]["kept"]
    assert scores["top-k"] == pytest.approx(slow_scores(models, split, equal), abs=1e-6)
    assert scores["random"]["kept"] == pytest.approx(equal)
    assert scores["random"]["auprc"] != scores["policy"]["auprc"]
    assert scores["random"]["people_f1"] == scores["policy"]["people_f1"] if data == "marked" else 1


def test_a_share_is_kept_by_top_k_and_random(tiny_config: RunConfig, marked: Prepared) -> None:
    models = spread_models(tiny_config, marked)
    split = marked.split("test")
    scores = score_agreement(models, split, tiny_config, share=0.3, device=_CPU)
    assert scores["top-k"] == pytest.approx(slow_scores(models, split, 0.3), abs=1e-6)
    assert scores["random"]["kept"] == pytest.approx(scores["top-k"]["kept"])
    again = score_agreement(models, split, tiny_config, share=0.3, device=_CPU)
    assert again == scores
    other = tiny_config.model_copy(update={"seed": 9})
    moved = score_agreement(models, split, other, share=0.3, device=_CPU)
    assert moved["random"] != scores["random"]
    assert moved["policy"] == scores["policy"]


def test_what_cannot_be_scored(
    tiny_config: RunConfig, tiny: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = tiny.split("test")
    models = build_prepared_models(tiny_config, tiny)
    paper = {"name": "resan", "options": {"keep_unselected": True}}
    unfaithful = with_(tiny_config, "model", encoder=EncoderChoice.model_validate(paper))
    other = build_prepared_models(unfaithful, tiny)
    with pytest.raises(ConfigError, match=r"model\.encoder: not the faithful form") as caught:
        score_agreement(other, split, unfaithful, device=_CPU)
    assert "kept_only" in str(caught.value)
    without = tiny_config.model_copy(update={"phases": tiny_config.phases[:1]})
    with pytest.raises(ConfigError, match="the run has no policy"):
        score_agreement(models, split, without, device=_CPU)
    whole = split.batch
    monkeypatch.setattr(split, "batch", lambda rows: replace(whole(rows), rationale=None))
    with pytest.raises(DataError, match="do not say which words people marked"):
        score_agreement(models, split, tiny_config, device=_CPU)


@pytest.fixture(scope="module")
def trained(
    tiny_config: RunConfig, marked: Prepared, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    config = tiny_config.model_copy(update={"data": str(marked.folder)})
    path = tmp_path_factory.mktemp("runs") / "run"
    for _ in train(with_(config, "evaluation", all_tokens=False), path):
        pass
    return path


def test_the_command(trained: Path, marked: Prepared, tmp_path: Path) -> None:
    """Marks of two runs, and scores from files that are as good as people's, and as bad."""
    split = marked.split("test")
    files = [tmp_path / "first" / "other.jsonl", tmp_path / "second" / "other.jsonl"]
    for file, sign in zip(files, (1, -1), strict=True):
        file.parent.mkdir()
        lines = []
        for row in range(len(split)):
            bits = split.batch([row]).rationale
            assert bits is not None
            marks = (sign * bits[0][0].astype(int)).tolist()
            lines.append(json.dumps({"id": split.example_id(row), "scores": marks}))
        file.write_text("\n".join(lines))

    def ask(*more: str) -> Any:
        return invoke(["evaluate", str(trained), *more])

    shown = ask("--marks", "--share", "0.5").stdout
    assert all(choice in shown for choice in CHOICES)
    assert all(name in shown for name in ("IOU F1", "AUPRC", "token F1 at budgets", "similarity"))
    both = [part for file in files for part in ("--scores", str(file))]
    scores = json.loads(ask(*both, "--json").stdout)[str(trained)]
    assert list(scores) == [*CHOICES, *LINEAR, *map(str, files)]
    assert scores[str(files[0])]["auprc"] == pytest.approx(1.0)
    assert scores[str(files[1])]["auprc"] < 0.7
    for wrong, message in (
        (["--marks", "--mode", "all"], "Leave out one of them"),
        (["--share", "0.2"], "Give --marks, too"),
    ):
        refused = ask(*wrong)
        assert (refused.exit_code, message in refused.stderr) == (2, True)
