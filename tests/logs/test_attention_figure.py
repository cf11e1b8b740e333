"""The heat map of attention, as a file and in TensorBoard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rss_rl.logs.attention_figure import attention_image, write_attention
from rss_rl.logs.metrics import MetricsWriter
from rss_rl.types import Array

WORDS = ("the", "$x^", "owl$", "a_word_that_is_far_too_long_for_a_label", "<b>")


@pytest.fixture
def attention() -> Array:
    weights = np.zeros((5, 5), np.float32)
    weights[1, [0, 2, 4]] = 1.0, 0.75, 0.25
    weights[3, 4] = 1.0
    return weights


def drawn(folder: Path, attention: Array) -> str:
    assert write_attention(folder / "figure.svg", WORDS, attention)
    return (folder / "figure.svg").read_text()


def test_heads_and_dependents_are_named_and_others_are_not(
    attention: Array, tmp_path: Path
) -> None:
    svg = drawn(tmp_path, attention)
    for part in (">Attention from heads to dependents<", ">weight, mean over features<"):
        assert part in svg
    for part in ("owl$", "a_word_that_is_…", "&lt;b&gt;", ">the<"):
        assert part in svg
    only = np.zeros_like(attention)
    only[3, 4] = 1.0
    assert ">the<" not in drawn(tmp_path, only)


def test_no_attention_is_no_figure(tmp_path: Path) -> None:
    nothing = np.zeros((5, 5), np.float32)
    assert attention_image(WORDS, nothing) is None
    assert not write_attention(tmp_path / "figure.png", WORDS, nothing)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_gets_a_picture_now_and_then(attention: Array, tmp_path: Path) -> None:
    drawn = []

    def draw() -> Array | None:
        drawn.append(1)
        return attention_image(WORDS, attention)

    with MetricsWriter(tmp_path) as writer:
        writer.image(1, "selection/attention", draw)
        writer.image(2, "selection/attention", draw)  # in the same second
        with pytest.raises(ValueError, match="no registered image"):
            writer.image(3, "selection/attentions", draw)
    assert len(drawn) == 1
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    (picture,) = events.Images("selection/attention")
    assert picture.step == 1
    assert picture.height > 100
    assert picture.width > 100
