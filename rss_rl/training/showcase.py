"""A policy in TensorBoard: sentences with the words that it selects."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch

from rss_rl.data.store import Split
from rss_rl.reading.models import Models
from rss_rl.reading.scan import Scanned
from rss_rl.types import DEPENDENT, HEAD, Array, LabelSpec

_EXAMPLES = 4
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


def make_showcase(
    models: Models, examples: Split, device: torch.device, predicts: bool = True
) -> str:
    """A split's first examples as Markdown: marked sentences, each below its prediction and label.

    `predicts`: with the classifier's predictions.
    """
    rows = np.arange(min(_EXAMPLES, len(examples)))
    batch = examples.batch(rows)
    scanned = Scanned.of(models, batch, device)
    with models.evaluating(), torch.inference_mode():
        kept = scanned.thresholded
        heads = [f"label *{_label(examples.labels, label)}*" for label in batch.labels]
        if predicts:
            predicted = models.classifier.predict(scanned.logits(kept)).cpu().numpy()
            heads = [
                f"predicted *{_label(examples.labels, value)}*, {head}"
                for value, head in zip(predicted, heads, strict=True)
            ]
    bits = [selection.cpu().numpy() for selection in kept]
    shown = [_LEGEND]
    for row, head in zip(rows.tolist(), heads, strict=True):
        pairs = zip(examples.words(row), bits, strict=True)
        marked = " ‖ ".join(mark_sentence(words, selection[row]) for words, selection in pairs)
        shown += [head, f"> {marked}"]
    return "\n\n".join(shown)


def _label(labels: LabelSpec, value: float) -> str:
    """A class name, a score, or the number of a sentence or candidate, as Markdown."""
    if labels.kind == "score":
        return f"{value:.2f}"
    if labels.kind == "classes":
        return _escaped(labels.names[int(value)])
    return f"{labels.kind} {int(value)}"
