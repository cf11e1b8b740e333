"""Sentences that summarise the scores of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rss_rl.metrics.measures import find_measure, format_measure

Scores = Mapping[str, float | None]
_FAR_FROM_SHARE, _COLLAPSED = 0.05, 0.01
_EDGE = 0.05
"""Of what the selected words add to the accuracy of the majority class, the part that random words
must lack."""


def score_sentences(modes: Mapping[str, Scores], metric: str, split: str) -> list[str]:
    """Sentences about the scores of a split.

    Args:
        modes: scores by mode of selection, see `rss_rl.training.evaluation`.
        metric: the measure to report.
    """
    label, lines = find_measure(metric).label, []
    chosen, whole, moved = (modes.get(name, {}) for name in ("thresholded", "all", "random"))
    if (value := chosen.get(metric)) is not None:
        text = f"With {chosen['kept']:.1%} of the words, the {label} on {split} is "
        text += format_measure(metric, value)
        if (other := moved.get(metric)) is not None:
            text += f"; with as many random words it is {format_measure(metric, other)}"
        lines.append(f"{text}.")
    if (value := whole.get(metric)) is not None:
        score = format_measure(metric, value)
        lines.append(f"For a model trained to read every word, the {label} is {score}.")
    return lines


def kept_warning(report: Mapping[str, Any], asked: float | None) -> str | None:
    """A warning if a run misses its target share, keeps almost all or almost no words, or says the
    label by how many it keeps.

    Args:
        report: of the run. asked: its `reward.target_share`.
    """
    kept = report["splits"].get("dev", {}).get("thresholded", {}).get("kept")
    if kept is None:
        return None
    collapsed = not _COLLAPSED < kept < 1 - _COLLAPSED
    if asked is None:
        return (
            f"the policy keeps {kept:.1%} of dev's words, so it does not select. Set a target:"
            " reward.target_share=0.3 (--keep 0.3)"
            if collapsed
            else None
        )
    if abs(kept - asked) > _FAR_FROM_SHARE or (collapsed and _COLLAPSED < asked < 1 - _COLLAPSED):
        return (
            f"the policy keeps {kept:.1%} of dev's words; {100 * asked:.3g}% were asked for. Train "
            "longer (more steps in the phases that train the policy), or start from "
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
