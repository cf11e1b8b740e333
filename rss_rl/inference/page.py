"""The explanation page: one HTML file that loads nothing and sends nothing."""

from __future__ import annotations

__all__ = ["page"]

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from rss_rl.inference.facts import Facts
from rss_rl.logs.attention_figure import attention_svg
from rss_rl.types import DEPENDENT, HEAD, Array, LabelSpec
from rss_rl.version import VERSION

_MOST_CLASSES = 8
"""Classes a flip is told of, with what was predicted before; of more the likeliest."""
_MOST_DEPENDENTS = 40
_LEAST_WEIGHT = 0.002


def page(title: str, labels: LabelSpec, examples: Sequence[Facts], note: str = "") -> str:
    """The page as HTML.

    Args:
        title: names the run. labels: of its task. note: a line below the title.
    """
    data = {
        "kind": labels.kind,
        "low": labels.low,
        "high": labels.high,
        "examples": [_example(labels, facts) for facts in examples],
    }
    # A script ends at the first "</script", wherever it stands.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "@TITLE@": html.escape(title),
        "@NOTE@": html.escape(note),
        "@VERSION@": html.escape(VERSION),
        "@STYLE@": _asset("page.css"),
        "@SCRIPT@": _asset("page.js"),
        "@DATA@": text,
    }
    filled = _asset("page.html")
    for name, value in parts.items():  # data last, as its words may look like a name
        filled = filled.replace(name, value)
    return filled


def _asset(name: str) -> str:
    return files("rss_rl.inference").joinpath(name).read_text(encoding="utf-8")


def _example(labels: LabelSpec, facts: Facts) -> dict[str, Any]:
    names = list(facts.encoded.names)
    return {
        "names": names,
        "outcome": _told(facts.outcome, facts.outcome),
        "sentences": [_sentence(labels, facts, slot) for slot in range(len(facts.flips))],
    }


def _told(outcome: Array, before: Array) -> list[list[float]] | None:
    """[class, probability] of the likeliest classes and of the one predicted before.

    None where nothing was computed.
    """
    if np.isnan(outcome).any():
        return None
    if len(outcome) <= _MOST_CLASSES:
        chosen = list(range(len(outcome)))
    else:
        likeliest = np.argsort(-outcome, kind="stable")[:_MOST_CLASSES].tolist()
        chosen = list(dict.fromkeys([*likeliest, int(before.argmax())]))
    return [[index, round(float(outcome[index]), 5)] for index in chosen]


def _sentence(labels: LabelSpec, facts: Facts, slot: int) -> dict[str, Any]:
    shown = facts.explanation.sentences[slot]
    marks = facts.encoded.marks if slot == 0 else None
    chances = shown.probabilities
    return {
        "title": _title(labels, len(facts.flips), slot),
        "words": list(shown.words),
        "known": shown.known.astype(int).tolist(),
        "roles": (shown.selection[HEAD] + 2 * shown.selection[DEPENDENT]).tolist(),
        "chances": None if chances is None else np.round(chances.astype(float), 4).tolist(),
        "marks": None if marks is None else marks.tolist(),
        "attention": _sparse(facts.attention[slot]),
        "flips": [_told(outcome, facts.outcome) for outcome in facts.flips[slot]],
        "figure": _figure(facts, slot),
    }


def _title(labels: LabelSpec, slots: int, slot: int) -> str:
    if labels.chooses:
        return ("Passage", "Question")[slot]
    return "Text" if slots == 1 else f"Text {slot + 1}"


def _sparse(attention: Array | None) -> dict[int, list[list[float]]] | None:
    """For each head its strongest dependents, as [dependent, weight]."""
    if attention is None:
        return None
    found = {}
    for head in np.flatnonzero(attention.any(1)).tolist():
        strongest = np.argsort(-attention[head], kind="stable")[:_MOST_DEPENDENTS]
        found[head] = [
            [int(dependent), round(float(attention[head, dependent]), 4)]
            for dependent in strongest
            if attention[head, dependent] >= _LEAST_WEIGHT
        ]
    return found


def _figure(facts: Facts, slot: int) -> str | None:
    attention = facts.attention[slot]
    if attention is None:
        return None
    shown = facts.explanation.sentences[slot]
    return attention_svg(shown.words, attention)
