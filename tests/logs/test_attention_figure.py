"""The heat map of attention in TensorBoard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rss_rl.logs.attention_figure import attention_image, draw_attention
from rss_rl.logs.metrics import MetricsWriter
from rss_rl.types import Array

WORDS = ("the", "$x^", "owl$", "a_word_that_is_far_too_long_for_a_label", "<b>")


@pytest.fixture
def attention() -> Array:
    weights = np.zeros((5, 5), np.float32)
    weights[1, [0, 2, 4]] = 1.0, 0.75, 0.25
    weights[3, 4] = 1.0
    return weights


def drawn(attention: Array) -> set[str]:
    figure = draw_attention(WORDS, attention)
    assert figure is not None
    return {text.get_text() for text in figure.findobj(Text)}  # type: ignore[attr-defined]


def test_heads_and_dependents_are_named_and_others_are_not(attention: Array) -> None:
    words = {r"\$x^", r"owl\$", "a_word_that_is_…", "<b>", "the"}
    assert words | {"Attention from heads to dependents"} <= drawn(attention)
    only = np.zeros_like(attention)
    only[3, 4] = 1.0
    assert "the" not in drawn(only)


def test_no_attention_is_no_figure() -> None:
    assert attention_image(WORDS, np.zeros((5, 5), np.float32)) is None


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
