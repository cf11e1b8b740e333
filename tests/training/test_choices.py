"""Tasks that choose, through the whole trainer: learnt, selected and evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import planted_choices
import pytest

from rss_rl.config import parse_config
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import Source
from rss_rl.errors import ConfigError
from rss_rl.inference.model import load_model
from rss_rl.results.scores import score_run
from rss_rl.training.run import Finished, train
from rss_rl.training.trainer import Evaluated


def run(source: Source, folder: Path, **model: Any) -> tuple[Path, list[object]]:
    prepare(source, folder / "data", dim=8)
    config = parse_config(planted_choices.tree(folder / "data", **model), where="test")
    return folder / "run", list(train(config, folder / "run"))


def check_learnt(path: Path, events: list[object], accuracy: float) -> None:
    """Better than chance, by selections that leave words out; what was stored scores the same."""
    last = events[-1]
    assert isinstance(last, Finished)
    scores = last.report["splits"]["test"]
    assert scores["thresholded"]["accuracy"] > accuracy
    assert scores["thresholded"]["kept"] < 0.9
    opening = next(e for e in events if isinstance(e, Evaluated))
    assert opening.metrics["all"]["accuracy"] < 0.5  # so that something was learnt
    again = score_run(path, "test", ["thresholded"])
    assert again["thresholded"] == scores["thresholded"]


def test_the_right_sentence_is_learnt_to_be_chosen(tmp_path: Path) -> None:
    path, events = run(planted_choices.PLANTED_SENTENCES, tmp_path, encoder="source2token")
    check_learnt(path, events, 0.75)  # chance 0.29
    with pytest.raises(ConfigError, match="a new passage does not say what there is to choose"):
        load_model(path)


def test_the_right_candidate_is_learnt_to_be_chosen(tmp_path: Path) -> None:
    path, events = run(
        planted_choices.PLANTED_NAMES,
        tmp_path,
        classifier={"name": "cloze", "options": {"hidden": 8}},
    )
    check_learnt(path, events, 0.75)  # chance 0.33
