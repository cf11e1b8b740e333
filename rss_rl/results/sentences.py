"""What the scores of a report say, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rss_rl.metrics.measures import find_measure, format_measure

Scores = Mapping[str, float | None]


def score_sentences(modes: Mapping[str, Scores], metric: str, split: str) -> list[str]:
    """Sentences on a split.

    Args:
        modes: scores by mode of selection, see `rss_rl.training.evaluation`.
        metric: the measure to speak of.
    """
    return list(_sentences(modes, metric, split))


def _sentences(modes: Mapping[str, Scores], metric: str, split: str) -> Iterator[str]:
    label = find_measure(metric).label
    chosen, whole, moved = (modes.get(name, {}) for name in ("thresholded", "all", "random"))
    if (value := chosen.get(metric)) is not None:
        text = f"With {chosen['kept']:.1%} of the words, the {label} on {split} is "
        text += format_measure(metric, value)
        if (other := moved.get(metric)) is not None:
            text += f"; with as many random words it is {format_measure(metric, other)}"
        yield f"{text}."
    if (value := whole.get(metric)) is not None:
        score = format_measure(metric, value)
        yield f"For a model trained to read every word, the {label} is {score}."
