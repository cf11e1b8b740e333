"""Scores as tables and lines of text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from rss_rl.metrics.measures import find_measure, format_measure, in_order, task_measures
from rss_rl.results.frame import is_setting, score_names
from rss_rl.results.trojan import DependentWord

_MARKUP = re.compile(r"[`*_{}\[\]<>#|~&]|\\(?!u[0-9a-f]{4})")
NONE = "-"
"""Table cell without a value."""
MODES = {
    "thresholded": ("thresholded", "every word whose probability is above one half, as in use"),
    "sampled": ("sampled", "words drawn by their probabilities, as in training"),
    "random": ("random", "as many words of each text, drawn at random"),
    "all": ("all words", "another model, trained to read every word"),
    "linear": ("linear", "a linear classifier of all words, TF-IDF of words and word pairs"),
    "weights": ("largest weights", "as many words of each text, those that it weighs most"),
}
"""Selection modes: what they are called in tables, and what they are."""


def shown_scores(frame: pd.DataFrame) -> list[str]:
    """The scores that tables show: those that any line has, without what repeats another column.

    The reward is left out next to the loss or a measure of the task, the temperature, which only
    models in use apply, always. Heads and dependents are left out of a policy with one bit a word,
    as both equal what is kept.
    """
    names = [name for name in score_names(frame) if frame[name].notna().any()]
    hidden = {"temperature"}
    hidden |= {"reward"} if {"loss", *task_measures()} & {*names} else set()
    roles = {"heads_kept", "dependents_kept"}
    if roles < {*names} and all(
        frame[name].fillna(frame["kept"]).equals(frame["kept"]) for name in roles
    ):
        hidden |= roles
    return in_order({*names} - hidden)


def modes_note(modes: Iterable[str]) -> str:
    """What the selection modes are, in a line."""
    known = {*modes}
    shown = [what for mode, what in MODES.items() if mode in known]
    return " ".join(f"{name.capitalize()}: {meaning}." for name, meaning in shown)


def modes_frame(modes: Mapping[str, Mapping[str, float | None]]) -> pd.DataFrame:
    """Scores by mode, of one run and split, as the lines that `mode_cells` takes."""
    return pd.DataFrame([{"mode": mode, **scores} for mode, scores in modes.items()])


def score_cell(line: Mapping[str, Any], name: str) -> str:
    """A score, with its standard deviation in brackets if the line has one; `-` for none."""
    value, deviation = (line.get(key, math.nan) for key in (name, f"{name}_sd"))
    text = format_measure(name, None if pd.isna(value) else float(value))
    return text if pd.isna(deviation) else f"{text} ({format_measure(name, deviation)})"


def mode_cells(frame: pd.DataFrame, title: str) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table with a row per score and a column per mode.

    Args:
        frame: lines of one group and split. title: heading of the first column.
    """
    lines = frame.to_dict("records")
    body = [
        [find_measure(name).label, *(score_cell(line, name) for line in lines)]
        for name in shown_scores(frame)
    ]
    return [title, *(mode_name(line["mode"]) for line in lines)], body


def line_cells(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table with a row per group and mode, a column per brief score."""
    names = [name for name in shown_scores(frame) if find_measure(name).brief]
    body = [
        [str(line["group"]), mode_name(line["mode"]), *(score_cell(line, name) for name in names)]
        for line in frame.to_dict("records")
    ]
    return ["group", "selection", *(find_measure(name).label for name in names)], body


def mode_name(mode: str) -> str:
    """What tables call a selection mode."""
    return MODES[mode][0] if mode in MODES else mode


def setting_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Every setting but the seed: a row per setting, a column per group, `-` for none."""
    first = frame.drop_duplicates("group").set_index("group")
    names = [name for name in frame if is_setting(name) and name != "seed"]
    return first[names].map(lambda value: "-" if pd.isna(value) else str(value)).T


def differing_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `setting_texts` in which groups differ, but for the path of the data."""
    texts = setting_texts(frame).drop(index="data")
    return texts[texts.nunique(axis=1) > 1]


def word_cells(words: Sequence[DependentWord]) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table of words whose keeping depends on the predicted label."""
    body = []
    for word in words:
        ends = (f"{name}: {share:.0%}" for name, share in (word["most"], word["least"]))
        body.append([word["word"], *ends, f"{word['texts']:,}"])
    return ["word", "kept most when predicted", "kept least", "texts"], body


def markdown_text(text: str) -> str:
    r"""Any text as one line that Markdown shows literally, HTML and control characters included.

    >>> print(markdown_text("# <b>`x`\n"))
    \# \<b\>\`x\`\u000a
    """
    shown = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)
    return _MARKUP.sub(r"\\\g<0>", shown)


def markdown_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    r"""A table in Markdown, which the header may use, too.

    >>> print(markdown_table(["*model*", "r"], [["A|B", "0.5"]]))
    | *model* | r |
    | --- | --- |
    | A\|B | 0.5 |
    """
    lines = [list(header), *(list(map(markdown_text, line)) for line in body)]
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, f"| {' | '.join(['---'] * len(header))} |", *rest])
