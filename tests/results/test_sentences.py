"""What a report says in sentences."""

from __future__ import annotations

import pytest

from rss_rl.results.sentences import kept_warning, run_warnings


@pytest.mark.parametrize(
    ("kept", "asked", "said"),
    [
        (0.22, 0.2, None),
        (0.9, 0.2, "keeps 90.0% of dev's words; 20% were asked for"),
        (0.005, 0.03, "keeps 0.5% of dev's words; 3% were asked for"),
        (0.995, 0.97, "97% were asked for"),
        (0.5, 0.999, "99.9% were asked for"),
        (0.005, 0.005, None),
        (0.5, None, None),
        (0.999, None, "does not select"),
        (0.0, None, "does not select"),
        (None, None, None),
        (None, 0.2, None),
    ],
)
def test_another_share_than_was_asked_for_is_said(
    kept: float | None, asked: float | None, said: str | None
) -> None:
    scores = {} if kept is None else {"thresholded": {"kept": kept}}
    found = kept_warning({"splits": {"dev": scores}}, asked)
    assert (found is None) if said is None else (said in (found or ""))


@pytest.mark.parametrize(
    ("right", "by_chance", "warned"),
    [(0.92, 0.915, True), (0.92, 0.85, False), (0.6, 0.6, False), (0.92, None, False)],
)
def test_a_label_that_is_said_by_a_count_is_found(
    right: float, by_chance: float | None, warned: bool
) -> None:
    chosen = {"kept": 0.4, "accuracy": right, "majority_accuracy": 0.66}
    report = {"splits": {"dev": {"thresholded": chosen, "random": {"accuracy": by_chance}}}}
    found = kept_warning(report, 0.4)
    assert ("by how many it keeps" in (found or "")) is warned


def report_of(**scores: dict[str, float]) -> dict[str, object]:
    return {"splits": {"dev": scores, "test": scores}}


def test_a_linear_classifier_that_is_better_is_said() -> None:
    linear = {"linear": {"accuracy": 0.8}, "weights": {"accuracy": 0.7}}
    (warning,) = run_warnings(report_of(thresholded={"kept": 0.3, "accuracy": 0.75}, **linear), 0.3)
    assert "reads all words" in warning
    (warning,) = run_warnings(report_of(thresholded={"kept": 0.3, "accuracy": 0.65}, **linear), 0.3)
    assert "those it weighs most" in warning
    assert not [
        *run_warnings(report_of(thresholded={"kept": 0.3, "accuracy": 0.85}, **linear), 0.3)
    ]


@pytest.mark.parametrize(
    ("sampled", "what"),
    [
        ({"kept": 0.38, "accuracy": 0.77}, "(38.0%) the accuracy is 77.0%"),
        ({"kept": 0.38, "accuracy": 0.75}, None),
        ({"kept": 0.31, "accuracy": 0.70}, None),
    ],
)
def test_an_undecided_policy_is_said(sampled: dict[str, float], what: str | None) -> None:
    report = report_of(thresholded={"kept": 0.3, "accuracy": 0.75}, sampled=sampled)
    found = [*run_warnings(report, 0.3)]
    assert len(found) == (what is not None)
    assert what is None or what in found[0]
