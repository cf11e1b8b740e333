"""A whole run: its events, its report, and that 'all tokens' is what it says."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from trainers import saved_by, trainer_of

from rss_rl.config import PhaseConfig, RunConfig
from rss_rl.data.store import Prepared
from rss_rl.inference.model import Model
from rss_rl.logs.events import parse_events
from rss_rl.logs.logger import run_name
from rss_rl.logs.metrics import read_metrics
from rss_rl.reading.trained_runs import open_models
from rss_rl.runs.checkpoint import Checkpoint, load_checkpoint
from rss_rl.runs.run_directory import EVENTS_FILE
from rss_rl.training import learner
from rss_rl.training.evaluation import evaluate
from rss_rl.training.run import ALL_TOKENS, Finished, train
from rss_rl.training.showcase import make_showcase, mark_sentence
from rss_rl.training.trainer import Evaluated, PhaseBegan, Saved, Updated


@pytest.fixture(scope="module")
def finished(
    tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[object]]:
    path = tmp_path_factory.mktemp("run") / "run"
    return path, list(train(tiny_config, path))


def test_phases_follow_each_other_and_each_update_is_reported(
    finished: tuple[Path, list[object]],
) -> None:
    _, events = finished
    began = [(e.name, e.update, e.steps) for e in events if isinstance(e, PhaseBegan)]
    assert began == [
        ("warm-up", 0, 4),
        ("frozen", 4, 3),
        ("co-train", 7, 5),
        (ALL_TOKENS, 4, 8),
    ]
    updates = [e.update for e in events if isinstance(e, Updated)]
    assert updates == [*range(1, 13), *range(5, 13)]
    assert isinstance(events[-1], Finished)
    opening = [e.update for e in events if isinstance(e, Evaluated) and e.phase == "co-train"]
    assert opening == [7, 10, 12]


def test_the_report_has_every_mode_of_both_splits(finished: tuple[Path, list[object]]) -> None:
    _, events = finished
    last = events[-1]
    assert isinstance(last, Finished)
    report = last.report
    for split in ("dev", "test"):
        assert list(report["splits"][split]) == ["all", "thresholded", "sampled", "random"]
        for metrics in report["splits"][split].values():
            assert {"accuracy", "kept", "heads_kept", "dependents_kept"} <= set(metrics)
            assert {"rationale_f1", "rationale_f1_random"} <= set(metrics)
    assert report["steps"] == 12
    assert report["parameters"] > 0
    assert {"seed", "wall_seconds", "examples_per_second", "best_step"} <= set(report)


def test_all_tokens_is_a_model_that_never_saw_a_selection(
    finished: tuple[Path, list[object]], tiny_config: RunConfig, tmp_path: Path
) -> None:
    """The comparison branches off the warm-up; trained from scratch it is the same to the bit."""
    path, _ = finished
    whole = PhaseConfig(name="whole", supervised=True, selection="all", steps=8)
    scratch = tiny_config.model_copy(update={"phases": (tiny_config.phases[0], whole)})
    list(train(scratch, tmp_path / "scratch"))
    branched = load_checkpoint(path / ALL_TOKENS)
    straight = load_checkpoint(tmp_path / "scratch")
    assert branched.step == straight.step == 12
    names = [name for name in straight.tensors if name.startswith(("classifier/", "optimizer/"))]
    assert len(names) > 20
    for name in names:
        np.testing.assert_array_equal(branched.tensors[name], straight.tensors[name], name)


def test_under_a_share_both_rewards_are_without_its_costs(
    tiny_config: RunConfig, tmp_path: Path
) -> None:
    reward = tiny_config.reward.model_copy(update={"target_share": 0.5, "sparsity_cost": 0.3})
    list(train(tiny_config.model_copy(update={"reward": reward}), tmp_path / "run"))
    for place in ("run", f"run/{ALL_TOKENS}"):
        scores = json.loads((tmp_path / place / "report.json").read_text())["splits"]["dev"]["all"]
        assert scores["reward"] == pytest.approx(-scores["loss"], abs=1e-5)


def test_the_report_scores_the_checkpoint_that_was_best_on_dev(
    finished: tuple[Path, list[object]], tiny: Prepared
) -> None:
    path, events = finished
    last = events[-1]
    assert isinstance(last, Finished)
    config, models, inputs = open_models(path)
    assert inputs.vocabulary.words == tiny.vocabulary.words
    again = evaluate(
        models, tiny.split("test"), config, ["thresholded"], device=models.parameters()[0].device
    )
    assert again["thresholded"] == last.report["splits"]["test"]["thresholded"]
    scored = [e for e in events if isinstance(e, Evaluated) and e.phase == "co-train"]
    best = max(e.metrics["thresholded"]["accuracy"] for e in scored)
    assert last.report["splits"]["dev"]["thresholded"]["accuracy"] == best


def test_the_optimised_reward_is_the_logged_one(finished: tuple[Path, list[object]]) -> None:
    path, _ = finished
    table = read_metrics(path).to_pylist()
    values = {(row["step"], row["tag"]): row["value"] for row in table}
    for step in range(5, 13):
        reward = values[step, "reward/log_likelihood"] - values[step, "reward/sparsity_cost"]
        assert values[step, "reward/total"] == pytest.approx(reward, rel=1e-5)
        assert 0 <= values[step, "selection/kept"] <= 1
    assert (1, "reward/total") not in values  # nothing is sampled in the warm-up


def test_metrics_and_events_are_documented(
    finished: tuple[Path, list[object]], repository: Path
) -> None:
    path, _ = finished
    page = (repository / "docs" / "metrics.md").read_text(encoding="utf-8")
    known = set()
    for name in re.findall(r"^- `([^`]+)`", page, re.MULTILINE):
        before, *inside = re.split(r"[{}]", name)
        choices, after = (inside[0].split(","), inside[1]) if inside else ([""], "")
        known |= {f"{before}{choice}{after}" for choice in choices}
    tags = {row["tag"] for row in read_metrics(path).to_pylist()}
    events = {event["event"] for event in parse_events((path / EVENTS_FILE).read_bytes())}
    assert len(tags) > 40
    assert tags | events <= known


def test_an_undefined_metric_neither_stops_a_run_nor_is_the_best(
    tiny_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A correlation is left out where every prediction is the same, as after an empty selection."""
    undefined = iter([True, True, False] + [True] * 50)

    def scored(*args: object, **kwargs: object) -> dict[str, dict[str, float]]:
        result = evaluate(*args, **kwargs)  # type: ignore[arg-type]
        if next(undefined):
            for metrics in result.values():
                metrics.pop("accuracy")
        return result

    monkeypatch.setattr(learner, "evaluate", scored)
    events = list(train(tiny_config, tmp_path / "run"))
    assert isinstance(events[-1], Finished)
    warm_up = [e.best for e in events if isinstance(e, Evaluated) and e.phase == "warm-up"]
    assert warm_up == [True, False, True]  # the opening, nothing to compare, the first real one


def test_sentences_are_marked_by_role() -> None:
    selection = np.array([[True, True, False, False], [True, False, True, False]])
    text = mark_sentence(["a", "b", "c", "d"], selection)
    assert text == "**a** **b**ʰ **c**ᵈ d"


def rendered(markdown: str) -> str:
    """What TensorBoard's text plugin puts into its page."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the parser that it brings along
        from tensorboard import plugin_util
    page: str = plugin_util.markdown_to_safe_html(markdown)
    return page


def test_tensorboard_shows_predictions_and_labels_beside_marked_sentences(
    finished: tuple[Path, list[object]], tiny: Prepared
) -> None:
    model, dev = Model(*open_models(finished[0])), tiny.split("dev")
    shown = make_showcase(model.models, dev, torch.device("cpu"))
    page = rendered(shown)
    above = [part.rsplit("<p>", 1)[1].split("</p>")[0] for part in page.split("<blockquote>")[:-1]]
    cells = [part.split("</blockquote>")[0] for part in page.split("<blockquote>")[1:]]
    output = model.predict([dev.words(row) for row in range(4)])
    names = [dev.labels.names[label] for label in dev.batch(np.arange(4)).labels]
    assert above == [
        f"predicted <em>{explanation.prediction}</em>, label <em>{name}</em>"
        for explanation, name in zip(output, names, strict=True)
    ]
    for cell, explanation in zip(cells, output, strict=True):
        kept = sum(int(sentence.kept.sum()) for sentence in explanation.sentences)
        assert cell.count("<strong>") == kept


def shown_in_tensorboard(path: Path, config: RunConfig) -> EventAccumulator:
    folder = path / "tensorboard" / run_name(config)
    return EventAccumulator(str(folder), {"tensors": 0}).Reload()


def test_tensorboard_names_runs_and_shows_what_matters_first(
    finished: tuple[Path, list[object]], tiny_config: RunConfig
) -> None:
    path, _ = finished
    names = sorted(p.parent.name for p in path.rglob("events.out.tfevents.*"))
    assert names == ["tiny_all-words_seed-0", "tiny_rss_cost-0.02_seed-0"]
    found = shown_in_tensorboard(path, tiny_config)
    tags = sorted(found.Tags()["tensors"])
    first = ["accuracy_all_words", "accuracy_kept_words", "kept_as_drawn_in_training"]
    first += ["kept_in_use", "kept_words", "reward_without_price"]
    assert tags[:6] == [f"0_main/{name}" for name in first]
    assert "selection/examples/text_summary" in tags


def test_a_trainer_alone_writes_nothing(
    finished: tuple[Path, list[object]],
    tiny_config: RunConfig,
    tiny: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Checkpoints in memory serve it as those on disk do."""
    monkeypatch.chdir(tmp_path)
    kept: dict[str, Checkpoint] = {}
    trainer = trainer_of(tiny_config, tiny, marked=kept.__getitem__)
    for event in trainer.run():
        if isinstance(event, Saved):
            kept |= dict.fromkeys(event.marks, saved_by(trainer))
    assert not any(Path().iterdir())
    written = load_checkpoint(finished[0]).tensors
    for name, value in saved_by(trainer).tensors.items():
        np.testing.assert_array_equal(value, written[name], err_msg=name)
