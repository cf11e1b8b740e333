"""A policy in TensorBoard: histograms of probabilities, marked sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rss_rl.data.store import Split
from rss_rl.logs.metrics import MetricsWriter
from rss_rl.rollouts.run_models import Models
from rss_rl.rollouts.scan import Scanned
from rss_rl.types import DEPENDENT, HEAD, Array, LabelSpec

_HISTOGRAM_EXAMPLES = 256
_TEXT_EXAMPLES = 4
_LEGEND = "**bold**: kept; ʰ only as a head, ᵈ only as a dependent"
_MARKS = re.compile(r"[\\`*_{}\[\]()<>|&~#!]")
"""Characters with a meaning in Markdown or HTML."""


def mark_sentence(words: Sequence[str], selection: Array) -> str:
    """Markdown of a sentence: **both**, **head**ʰ, **dependent**ᵈ; the rest plain.

    TensorBoard's Markdown supports bold, italics, code and tables, not strikethrough or HTML.

    Args:
        selection: bool [2, N], N at least the number of words.
    """
    marked = []
    for position, word in enumerate(map(_escaped, words)):
        head, dependent = selection[HEAD, position], selection[DEPENDENT, position]
        role = "" if head and dependent else "ʰ" if head else "ᵈ"
        marked.append(f"**{word}**{role}" if head or dependent else word)
    return " ".join(marked)


def _escaped(text: str) -> str:
    """The text on one line, with Markdown escaped."""
    line = " ".join(text.split())
    return _MARKS.sub(lambda mark: f"&#{ord(mark[0])};", line)


@dataclass(frozen=True)
class Showcase:
    """What TensorBoard shows of dev examples.

    heads, dependents  float32, probabilities of tokens as head and as dependent
    markdown           marked sentences, each below its prediction and label
    """

    heads: Array
    dependents: Array
    markdown: str

    def write(self, writer: MetricsWriter, step: int) -> None:
        """Write it to TensorBoard."""
        writer.histogram(step, "selection/probability_head", self.heads)
        writer.histogram(step, "selection/probability_dependent", self.dependents)
        writer.text(step, "selection/examples", self.markdown)


def make_showcase(
    models: Models, examples: Split, device: torch.device, predicts: bool = True
) -> Showcase:
    """The showcase of a split's first examples; `predicts`: with the classifier's predictions."""
    rows = np.arange(min(_HISTOGRAM_EXAMPLES, len(examples)))
    batch = examples.batch(rows)
    scanned = Scanned.of(models, batch, device)
    gathered: dict[int, list[Array]] = {HEAD: [], DEPENDENT: []}
    lines: dict[int, list[str]] = {row: [] for row in range(min(_TEXT_EXAMPLES, len(rows)))}
    with models.evaluating(), torch.inference_mode():
        for slot, found in enumerate(scanned.distributions):
            chances = found.probs.float().cpu().numpy()
            selection = found.mode.cpu().numpy()
            for role, values in gathered.items():
                values.append(chances[:, role][batch.valid[slot]])
            for row, texts in lines.items():
                texts.append(mark_sentence(examples.words(row)[slot], selection[row]))
        heads = [f"label *{_label(examples.labels, batch.labels[row])}*" for row in lines]
        if predicts:
            few = examples.batch(list(lines))
            shown = Scanned.of(models, few, device)
            logits = shown.logits(shown.thresholded)
            predicted = models.classifier.predict(logits).cpu().numpy()
            heads = [
                f"predicted *{_label(examples.labels, value)}*, {head}"
                for value, head in zip(predicted, heads, strict=True)
            ]
        quoted = [f"> {' ‖ '.join(texts)}" for texts in lines.values()]
    return Showcase(
        np.concatenate(gathered[HEAD]),
        np.concatenate(gathered[DEPENDENT]),
        "\n\n".join(
            [_LEGEND, *(part for pair in zip(heads, quoted, strict=True) for part in pair)]
        ),
    )


def _label(labels: LabelSpec, value: float) -> str:
    """A class name, a score, or the number of a sentence or candidate, as Markdown."""
    if labels.kind == "score":
        return f"{value:.2f}"
    if labels.kind == "classes":
        return _escaped(labels.names[int(value)])
    return f"{labels.kind} {int(value)}"
