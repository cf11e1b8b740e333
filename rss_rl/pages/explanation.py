"""The explanation page of one model: a self-contained HTML file that loads and sends nothing.

It shows the selection, and the effect of flipping each word of an example.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rss_rl.inference.facts import Facts
from rss_rl.pages.assets import filled, script_data
from rss_rl.types import DEPENDENT, HEAD, Array, LabelSpec
from rss_rl.version import VERSION

_MOST_CLASSES = 8
"""Classes shown for a flip; if there are more, the most probable and the one predicted before."""


def explanation_page(title: str, labels: LabelSpec, facts: Facts, note: str = "") -> str:
    """The page as HTML.

    Args:
        title: names the run. labels: of the task. facts: of the example. note: a line below the
            title.
    """
    data = {
        "kind": labels.kind,
        "names": list(labels.names),
        "low": labels.low,
        "high": labels.high,
        "outcome": _class_shares(facts.outcome, facts.outcome),
        "sentences": [_sentence(facts, slot) for slot in range(len(facts.flips))],
    }
    return filled(
        "explanation.html", title=title, note=note, version=VERSION, data=script_data(data)
    )


def _class_shares(outcome: Array, before: Array) -> list[list[float]] | None:
    """[class, probability] of the most probable classes and of the one predicted before.

    None if the outcome was not computed.
    """
    if np.isnan(outcome).any():
        return None
    if len(outcome) <= _MOST_CLASSES:
        chosen = list(range(len(outcome)))
    else:
        likeliest = np.argsort(-outcome, kind="stable")[:_MOST_CLASSES].tolist()
        chosen = list(dict.fromkeys([*likeliest, int(before.argmax())]))
    return [[index, round(float(outcome[index]), 5)] for index in chosen]


def _sentence(facts: Facts, slot: int) -> dict[str, Any]:
    shown = facts.explanation.sentences[slot]
    chances = shown.probabilities
    return {
        "title": text_titles(len(facts.flips))[slot],
        "words": list(shown.words),
        "known": shown.known.astype(int).tolist(),
        "roles": (shown.selection[HEAD] + 2 * shown.selection[DEPENDENT]).tolist(),
        "chances": None if chances is None else np.round(chances.astype(float), 4).tolist(),
        "flips": [_class_shares(outcome, facts.outcome) for outcome in facts.flips[slot]],
    }


def text_titles(texts: int) -> list[str]:
    """Titles of the texts of an example."""
    return ["Text"] if texts == 1 else [f"Text {number + 1}" for number in range(texts)]
