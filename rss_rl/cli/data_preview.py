"""What an example of prepared data says, in one line, and what its label is about."""

from __future__ import annotations

__all__ = ["example_line", "gold", "predicted"]

import numpy as np

from rss_rl.data.store import Split
from rss_rl.types import LabelSpec


def predicted(labels: LabelSpec) -> str:
    """What is predicted, for people."""
    if labels.kind == "score":
        return f"score {labels.low:g} to {labels.high:g}"
    if labels.kind == "sentence":
        return "which sentence answers the question"
    if labels.kind == "candidate":
        return "which candidate of the passage fills the blank"
    return ", ".join(labels.names)


def gold(split: Split, row: int) -> str:
    """The label of a row: the class, the score, or the words of the right sentence or candidate."""
    batch = split.batch([row])
    label = batch.labels[0]
    if split.labels.kind == "score":
        return f"{label:g}"
    if batch.marks is None:
        return split.labels.names[int(label)]
    places = np.flatnonzero(batch.marks[0] == label)
    # A candidate stands there several times, a sentence once.
    shown = places[:1] if split.labels.kind == "candidate" else places
    words = split.words(row)[0]
    return f"{label} ({' '.join(words[place] for place in shown)})"


def example_line(split: Split, row: int) -> str:
    """Id, label and texts of a row."""
    texts = " | ".join(" ".join(words) for words in split.words(row))
    return f"{split.example_id(row)}  {gold(split, row)}: {texts}"
