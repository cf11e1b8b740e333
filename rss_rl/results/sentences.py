"""Sentences that summarise the scores of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from rss_rl.data.manifest import SplitInfo
from rss_rl.metrics.measures import find_measure, format_measure
from rss_rl.results.trojan import COMMON, MARGIN, Trojan

Scores = Mapping[str, float | None]
_FAR_FROM_SHARE, _COLLAPSED = 0.05, 0.01
_UNDECIDED = 0.01
"""Accuracy by which drawn selections must lead those in use for a warning."""
_EDGE = 0.05
"""Of what the selected words add to the accuracy of the majority class, the part that random words
must lack."""


def marks_sentence(modes: Mapping[str, Scores]) -> str | None:
    """How the kept words agree with marked ones: those that decide, or that people chose."""
    chosen = modes.get("thresholded", {})
    if chosen.get("rationale_f1") is None:
        return None
    return (
        "The data mark the words that decide the label, or that people chose; the policy was not"
        f" given the marks. Of the words it keeps, {chosen['rationale_precision']:.0%} are marked,"
        f" and it keeps {chosen['rationale_recall']:.0%} of all marked words (F1"
        f" {chosen['rationale_f1']:.2f}; random words: {chosen['rationale_f1_random']:.2f})."
    )


def interval_sentence(modes: Mapping[str, Scores], info: SplitInfo, split: str) -> str | None:
    """How far the accuracies of a split may be from those on more of such texts.

    Copies of a text say what one does.

    Args:
        modes: scores by mode of selection. info: of the split.
    """
    said = []
    for mode, words in (("thresholded", "kept words"), ("random", "random"), ("all", "all words")):
        accuracy = modes.get(mode, {}).get("accuracy")
        if accuracy is not None:
            low, high = accuracy_interval(accuracy, info.texts)
            said.append(f"{low:.1%} to {high:.1%} ({words})")
    if not said:
        return None
    texts = "" if info.texts == info.rows else f" of {info.texts:,} texts"
    return (
        f"{split.capitalize()} has {info.rows:,} rows{texts}: 95% intervals are {', '.join(said)}."
    )


def rows_sentence(curve: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Whether more rows would help.

    Args:
        curve: `rows` and scores by `modes` of runs on ever more rows, see report.json.
    """
    form, said = partial(format_measure, metric), []
    for mode, what in (("thresholded", "kept words"), ("linear", "a linear classifier")):
        scores = [part["modes"].get(mode, {}).get(metric) for part in curve]
        if None not in scores:
            said.append(f"{what} {', '.join(map(form, scores))}")
    rows = ", ".join(f"{part['rows']:,}" for part in curve)
    return f"{find_measure(metric).label} from {rows} rows: {'; '.join(said)}."


def accuracy_interval(accuracy: float, rows: int) -> tuple[float, float]:
    """Wilson's 95% interval of an accuracy that was measured on `rows` rows."""
    interval = binomtest(round(accuracy * rows), rows).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def still_training(frame: pd.DataFrame) -> Iterator[str]:
    """That runs are not finished, a line each."""
    for run in frame.loc[~frame["finished"], "run"].unique():
        yield f"{run}: is not finished, and has scores of dev alone, the best so far"


def run_warnings(report: Mapping[str, Any], target_share: float | None) -> Iterator[str]:
    """What is wrong with the result of a run, and what to do.

    Args:
        report: of the run. target_share: its `reward.target_share`.
    """
    split = "test" if "test" in report["splits"] else "dev"
    modes = report["splits"].get(split, {})
    for name, copies in report.get("in_train", {}).items():
        if copies["rows"]:
            yield (
                f"{copies['rows']:,} of {name}'s rows ({copies['share']:.1%}) have a text that is"
                " in train, too: scores on them are not those of new texts"
            )
    yield from filter(None, (kept_warning(report, target_share), decided_warning(modes)))
    trojan = report.get("trojan", {}).get(split)
    yield from filter(None, [linear_warning(modes, split), trojan_warning(trojan)])


def trojan_sentences(trojan: Trojan | None, split: str) -> list[str]:
    """Whether the kept words decide, see `rss_rl.results.trojan`."""
    if trojan is None:
        return ["This is looked at where labels are classes and words are selected."]
    reader, told = trojan["reader"], trojan["told"]
    if told is None:
        said = ["Not known: too few texts, or too few of a second prediction, to tell."]
    else:
        low, high = 100 * told["low"], 100 * told["high"]
        few = ", as far as so few texts show" if told["high"] > 2 * MARGIN else ""
        said = [
            "No. The policy decides, then keeps words that plead for its decision; they do not"
            " explain it."
            if told["low"] > MARGIN
            else f"Nothing speaks against it{few}: keeping a word says hardly more about the"
            " prediction than its being there.",
            f"Which of the {COMMON} commonest words are kept tells the run's own prediction in"
            f" {told['kept']:.0%} of the texts (classes count alike), which of them occur in"
            f" {told['there']:.0%}; the 99% interval of the difference is {low:+.0f} to {high:+.0f}"
            " points.",
        ]
    if reader:
        said.append(
            "A linear classifier of random parts of training texts, which has no part in the choice"
            f" of words, is right on {reader['kept']:.1%} of {split} by the kept words, on"
            f" {reader['random']:.1%} by as many random words, and on {reader['all']:.1%} by all."
        )
    return said


def trojan_warning(trojan: Trojan | None) -> str | None:
    """A warning if keeping words says the label, see `rss_rl.results.trojan`."""
    told = None if trojan is None else trojan["told"]
    if trojan is None or told is None or told["low"] <= MARGIN:
        return None
    remedy = " ".join(trojan.get("remedy", []))
    return (
        f"which words are kept tells the prediction in {told['kept']:.0%} of the texts, which occur"
        f" in {told['there']:.0%}: the policy keeps words that plead for what it has decided"
    ) + (f". One that reads single words cannot: {remedy}" if remedy else "")


def linear_warning(modes: Mapping[str, Scores], split: str) -> str | None:
    """A warning if a linear classifier beats the run's kept words, with as many or all words."""
    ours = modes.get("thresholded", {}).get("accuracy")
    read = {"weights": "as many words, those it weighs most,", "linear": "all words"}
    for name, words in read.items():
        value = modes.get(name, {}).get("accuracy")
        if ours is not None and value is not None and ours < value:
            return (
                f"on {split}, a linear classifier that reads {words} is right more often"
                f" ({value:.1%}) than this run on the words it keeps ({ours:.1%}). Give it word"
                " vectors (--vectors) or a transformer (--pretrained), more rows, or more words to"
                " keep (--keep)"
            )
    return None


def decided_warning(modes: Mapping[str, Scores]) -> str | None:
    """A warning if selections as drawn in training are read better than those in use."""
    chosen, drawn = (modes.get(name, {}) for name in ("thresholded", "sampled"))
    one, other = chosen.get("accuracy"), drawn.get("accuracy")
    if one is None or other is None or other - one <= _UNDECIDED:
        return None
    return (
        f"the policy is undecided: with the words that it draws in training ({drawn['kept']:.1%})"
        f" the accuracy is {other:.1%}, with those in use ({chosen['kept']:.1%}) {one:.1%}"
    )


def kept_warning(report: Mapping[str, Any], target_share: float | None) -> str | None:
    """A warning if a run misses its target share, keeps almost all or almost no words, or says the
    label by how many it keeps.

    Args:
        report: of the run. target_share: its `reward.target_share`.
    """
    kept = report["splits"].get("dev", {}).get("thresholded", {}).get("kept")
    if kept is None:
        return None
    collapsed = not _COLLAPSED < kept < 1 - _COLLAPSED
    if target_share is None:
        return (
            f"the policy keeps {kept:.1%} of dev's words, so it does not select. Set a target:"
            " reward.target_share=0.3 (--keep 0.3)"
            if collapsed
            else None
        )
    if abs(kept - target_share) > _FAR_FROM_SHARE or (
        collapsed and _COLLAPSED < target_share < 1 - _COLLAPSED
    ):
        return (
            f"the policy keeps {kept:.1%} of dev's words; {100 * target_share:.3g}% were asked for."
            " Train longer (more steps in the phases that train the policy), or start from "
            "another initial_probability of the policy"
        )
    return _count_warning(report["splits"]["dev"])


def _count_warning(modes: Mapping[str, Scores]) -> str | None:
    """A warning if as many random words of each text predict its class nearly as well."""
    chosen, moved = (modes.get(name, {}) for name in ("thresholded", "random"))
    least = chosen.get("majority_accuracy")
    right, by_chance = chosen.get("accuracy"), moved.get("accuracy")
    if least is None or right is None or by_chance is None or right <= least:
        return None
    if right - by_chance >= _EDGE * (right - least):
        return None
    return (
        f"as many random words of each text are right as often ({by_chance:.1%}; the selected ones"
        f" {right:.1%}): either any words will do, or the policy says the label by how many it"
        " keeps. policy.options.even=true has it keep the same share of every text"
    )
