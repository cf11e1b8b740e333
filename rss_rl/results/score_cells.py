"""Table cells for scores, and for measures of the agreement with people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from rss_rl.metrics.measures import find_measure, format_measure, in_order, task_measures
from rss_rl.results.frame import is_setting, score_names

MODES = {
    "thresholded": ("thresholded", "every word whose probability is above one half, as in use"),
    "sampled": ("sampled", "words drawn by their probabilities, as in training"),
    "random": ("random", "as many words of each text, drawn at random"),
    "all": ("all words", "another model, trained to read every word"),
    "whole": ("all words, same classifier", "every word, read by the model trained on selections"),
}
"""Selection modes: what they are called in tables, and what they are."""

AGREEMENT_LABELS = {
    "accuracy": "accuracy",
    "accuracy_all": "reading all",
    "kept": "kept",
    "token_precision": "precision",
    "token_recall": "recall",
    "token_f1": "token F1",
    "iou_f1": "IOU F1",
    "auprc": "AUPRC",
    "budget_token_f1": "token F1 at budgets",
    "count_token_f1": "token F1 at people's count",
    "budget_iou_f1": "IOU F1 at budgets",
    "count_iou_f1": "IOU F1 at people's count",
    "comprehensiveness": "compr.",
    "sufficiency": "suff.",
    "aopc_comprehensiveness": "AOPC compr.",
    "aopc_sufficiency": "AOPC suff.",
    "budget_comprehensiveness": "compr. at budgets",
    "budget_sufficiency": "suff. at budgets",
    "similarity": "similarity",
    "people_similarity": "people's",
    "annotator_f1": "annotator F1",
    "people_f1": "people's F1",
}
_AGREEMENT_SHARES = {"accuracy", "accuracy_all", "kept"}


def shown_scores(frame: pd.DataFrame) -> list[str]:
    """The scores that tables show: those that any line has, without what repeats another column.

    The reward is left out next to the loss or a measure of the task. Heads and dependents are left
    out of a policy with one bit a word, as both equal what is kept.
    """
    found = [name for name in score_names(frame) if frame[name].notna().any()]
    hidden = {"reward"} if {"loss", *task_measures()} & {*found} else set()
    roles = {"heads_kept", "dependents_kept"}
    if roles < {*found} and all(frame[name].equals(frame["kept"]) for name in roles):
        hidden |= roles
    return in_order({*found} - hidden)


def modes_note(modes: Iterable[str]) -> str:
    """What the selection modes are, in a line."""
    given = {*modes}
    shown = [what for mode, what in MODES.items() if mode in given]
    return " ".join(f"{name.capitalize()}: {meaning}." for name, meaning in shown)


def modes_frame(modes: Mapping[str, Mapping[str, float | None]]) -> pd.DataFrame:
    """Scores by mode, of one run and split, as the lines that `mode_cells` takes."""
    return pd.DataFrame([{"mode": mode, **scores} for mode, scores in modes.items()])


def score_cell(line: Mapping[str, Any], name: str) -> str:
    """A score, with its standard deviation in brackets if the line has one; `-` for none."""
    value, deviation = line[name], line.get(f"{name}_sd")
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
    return [title, *(MODES[line["mode"]][0] for line in lines)], body


def group_cells(frame: pd.DataFrame, name: str, title: str) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table of one score: a row per group, a column per mode.

    Args:
        frame: lines of one split. title: heading of the first column.
    """
    modes = [mode for mode in MODES if mode in {*frame["mode"]}]
    body = []
    for group, lines in frame.groupby("group"):
        by_mode = {line["mode"]: line for line in lines.to_dict("records")}
        cells = (score_cell(by_mode[m], name) if m in by_mode else "-" for m in modes)
        body.append([str(group), *cells])
    return [title, *(MODES[mode][0] for mode in modes)], body


def setting_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Every setting but the seed: a row per setting, a column per group, `-` for none."""
    first = frame.drop_duplicates("group").set_index("group")
    names = [name for name in frame if is_setting(name) and name != "seed"]
    return first[names].map(lambda value: "-" if pd.isna(value) else str(value)).T


def differing_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `setting_texts` in which groups differ, but for the path of the data."""
    texts = setting_texts(frame).drop(index="data")
    return texts[texts.nunique(axis=1) > 1]


def agreement_cells(
    found: Mapping[str, Mapping[str, float]], title: str
) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table with a row per measure and a column per selection."""
    names = [name for name in AGREEMENT_LABELS if any(name in own for own in found.values())]
    body = [
        [AGREEMENT_LABELS[name], *(format_agreement(name, own.get(name)) for own in found.values())]
        for name in names
    ]
    return [title, *found], body


def format_agreement(name: str, value: float | None) -> str:
    """A value as shown in tables; `-` for None."""
    if value is None:
        return "-"
    return f"{value:.1%}" if name in _AGREEMENT_SHARES else f"{value:.3f}"
