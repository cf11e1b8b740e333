"""The heat map of attention from selected heads to selected dependents.

Source: figure 2 of Shen et al., Reinforced Self-Attention Network (IJCAI 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rss_rl.types import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_WORDS = 40
"""Maximum heads or dependents in a figure; those with the greatest weights are shown."""
_LONGEST_WORD = 16
_DPI = 110


def attention_image(words: Sequence[str], attention: Array) -> Array | None:
    """The figure as uint8 [height, width, 3]; None if no head attends to a dependent."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = draw_attention(words, attention)
    if figure is None:
        return None
    figure.set_dpi(_DPI)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def draw_attention(words: Sequence[str], attention: Array) -> Figure | None:
    """Heads as rows, dependents as columns, in sentence order; darker is more attention.

    Returns:
        None if no head attends to a dependent.
    """
    from matplotlib.figure import Figure

    heads, dependents = _strongest(attention.sum(1)), _strongest(attention.sum(0))
    if not len(heads):
        return None
    shown = attention[np.ix_(heads, dependents)]
    width, height = 1.6 + 0.3 * len(dependents), 1.3 + 0.28 * len(heads)
    figure = Figure(figsize=(max(3.2, width), max(2.2, height)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shown, cmap="Blues", vmin=0.0, vmax=max(0.05, float(shown.max())))
    for axis, indices in ((axes.yaxis, heads), (axes.xaxis, dependents)):
        axis.set_ticks(range(len(indices)), [_label(words[index]) for index in indices])
        axis.set_tick_params(length=0, labelsize=8)
    for label in axes.get_xticklabels():
        label.set(rotation=60, ha="right", rotation_mode="anchor")
    axes.set_title("Attention from heads to dependents", fontsize=9)
    axes.set_xlabel("dependent: gives context", fontsize=8, color="0.3")
    axes.set_ylabel("head: looks for it", fontsize=8, color="0.3")
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(len(dependents) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(heads) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, length=0)
    bar.set_label("weight, mean over features", fontsize=7, color="0.3")
    return figure


def _strongest(totals: Array) -> Array:
    """Positions with the greatest nonzero weights, in sentence order."""
    order = np.argsort(-totals, kind="stable")[:_MOST_WORDS]
    return np.sort(order[totals[order] > 0])


def _label(word: str) -> str:
    # matplotlib parses text between two dollar signs as a formula.
    short = word if len(word) <= _LONGEST_WORD else f"{word[: _LONGEST_WORD - 1]}…"
    return short.replace("$", r"\$")
