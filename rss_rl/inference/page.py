"""The explanation page of one model: an HTML file that loads nothing and sends nothing.

Of each example it shows the selection, the attention, and what every single flip of a word changes.

Legend: N_s tokens of slot s, C classes.
"""

from __future__ import annotations

__all__ = ["MOST_FLIPS", "Facts", "gather_facts", "page"]

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rss_rl.inference.explanation import Explanation
from rss_rl.inference.model import Chosen, Encoded, Model
from rss_rl.logs.attention_figure import attention_svg
from rss_rl.models.attention_map import attention_map
from rss_rl.types import DEPENDENT, HEAD, Array, LabelSpec
from rss_rl.version import VERSION

_MOST_CLASSES = 8
"""Classes that are shown for a flip; of more the likeliest, and the one predicted before."""
_MOST_DEPENDENTS = 40
_LEAST_WEIGHT = 0.002
_TOKENS_AT_A_TIME = 1 << 13
MOST_FLIPS = 200


@dataclass(frozen=True)
class Facts:
    """One example.

    explanation  words, selection, probabilities, prediction
    outcome      float32 [C], class probabilities; of a score task [1], the score
    flips        S x float32 [N_s, C or 1], the outcome when a word is forced in (as head and
                 dependent) or, where it was kept, out; all other words stay as they are; NaN where
                 it was not computed
    attention    S x float32 [N_s, N_s], from head to dependent, see `attention_map`; None where
                 there is none
    encoded      the example as the model read it
    """

    explanation: Explanation
    outcome: Array
    flips: tuple[Array, ...]
    attention: tuple[Array | None, ...]
    encoded: Encoded


def gather_facts(
    model: Model,
    encoded: Encoded,
    most_flips: int = MOST_FLIPS,
    progress: Callable[[int], None] = lambda done: None,
) -> Facts:
    """Read one example, and read it again once for each of its words.

    Args:
        encoded: as `model.encode` returns it.
        most_flips: in each text; of a longer one kept words are flipped first, then those with the
            greatest probability.
        progress: called with the number of words flipped so far in the present text.
    """
    (explanation,) = model.read([encoded])
    chosen = model.choose([encoded])
    slots = range(len(encoded.ids))
    return Facts(
        explanation,
        _outcomes(model, chosen)[0].numpy(),
        tuple(_flips(model, chosen, slot, most_flips, progress) for slot in slots),
        tuple(_attention(model, chosen, slot) for slot in slots),
        encoded,
    )


def _outcomes(model: Model, chosen: Chosen) -> Tensor:
    """[B, C or 1]."""
    logits = model.logits(chosen)
    if model.labels.kind == "score":
        return model.models.classifier.predict(logits).float()[:, None]
    return torch.softmax(logits.float(), -1)


def _flips(
    model: Model, chosen: Chosen, slot: int, most: int, progress: Callable[[int], None]
) -> Array:
    words = chosen.tokens[slot].shape[1]
    step = max(1, _TOKENS_AT_A_TIME // sum(ids.shape[1] for ids in chosen.tokens))
    found: Array | None = None
    for done, indices in enumerate(torch.split(_worth_most(chosen, slot, most), step)):
        outcomes = _outcomes(model, _flipped(chosen, slot, indices)).numpy()
        if found is None:
            found = np.full((words, outcomes.shape[1]), np.nan, np.float32)
        found[indices.numpy()] = outcomes
        progress(done * step + len(indices))
    assert found is not None  # every text has a word
    return found


def _worth_most(chosen: Chosen, slot: int, most: int) -> Tensor:
    """Places of the words to flip, int64 [at most `most`]."""
    worth = chosen.selections[slot][0].any(0).float()  # [N]
    if chosen.probabilities is not None:
        worth = worth + chosen.probabilities[slot][0].amax(0)
    return torch.argsort(worth, descending=True, stable=True)[:most].sort().values


def _flipped(chosen: Chosen, slot: int, indices: Tensor) -> Chosen:
    """The example once for each of `indices`, with that word of `slot` flipped."""
    times = len(indices)

    def again(tensor: Tensor) -> Tensor:
        return tensor.expand(times, *tensor.shape[1:])

    selections = [again(selection) for selection in chosen.selections]
    changed = selections[slot].clone()  # [P, 2, N]
    rows = torch.arange(times)
    changed[rows, :, indices] = ~changed[rows, :, indices].any(1, keepdim=True)
    selections[slot] = changed
    return Chosen(
        [again(ids) for ids in chosen.tokens],
        [again(mask) for mask in chosen.valid],
        None if chosen.marks is None else again(chosen.marks),
        selections,
        None,
    )


def _attention(model: Model, chosen: Chosen, slot: int) -> Array | None:
    groups = None
    if model.labels.chooses:
        if slot > 0 or chosen.marks is None:
            return None  # a question is pooled without words looking at each other
        groups = chosen.marks[0]
    with torch.inference_mode():
        found = attention_map(
            model.models.classifier, chosen.tokens[slot][0], chosen.selections[slot][0], groups
        )
    return None if found is None else found.numpy()


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
        "outcome": _class_shares(facts.outcome, facts.outcome),
        "sentences": [_sentence(labels, facts, slot) for slot in range(len(facts.flips))],
    }


def _class_shares(outcome: Array, before: Array) -> list[list[float]] | None:
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
    attention = facts.attention[slot]
    chances = shown.probabilities
    return {
        "title": _title(labels, len(facts.flips), slot),
        "words": list(shown.words),
        "known": shown.known.astype(int).tolist(),
        "roles": (shown.selection[HEAD] + 2 * shown.selection[DEPENDENT]).tolist(),
        "chances": None if chances is None else np.round(chances.astype(float), 4).tolist(),
        "marks": None if marks is None else marks.tolist(),
        "attention": _sparse(attention),
        "flips": [_class_shares(outcome, facts.outcome) for outcome in facts.flips[slot]],
        "figure": None if attention is None else attention_svg(shown.words, attention),
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
