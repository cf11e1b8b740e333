"""How a selection is shown."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from rss_rl.cli.show import print_explanation
from rss_rl.inference.explanation import Explanation, MarkedSentence


def shown(explanation: Explanation) -> str:
    out = io.StringIO()
    print_explanation(Console(file=out, width=100, highlight=False), explanation)
    return out.getvalue()


@pytest.fixture
def sentence() -> MarkedSentence:
    """Four tokens: a head, a dependent, neither, and one that is unknown and both."""
    return MarkedSentence(
        words=("a", "[b]", "c", "zyx"),
        known=np.array([True, True, True, False]),
        selection=np.array([[True, False, False, True], [False, True, False, True]]),
        probabilities=np.array([[0.9, 0.1, 0.2, 0.8], [0.3, 0.6, 0.4, 0.7]], np.float32),
    )


def test_kept_words_stand_out_without_colours(sentence: MarkedSentence) -> None:
    lines = shown(Explanation((sentence,), "yes", {"no": 0.25, "yes": 0.75})).splitlines()
    assert lines[0].rstrip() == "[a] [[b]] c [zyx?]"  # words are no markup
    rows = [line.split() for line in lines[3:7]]
    assert rows == [
        ["a", "0.90", "●", "0.30", "·"],
        ["[b]", "0.10", "·", "0.60", "●"],
        ["c", "0.20", "·", "0.40", "·"],
        ["zyx?", "0.80", "●", "0.70", "●"],
    ]
    assert "kept 75% of the tokens" in "\n".join(lines)
    assert "prediction: yes" in lines
    assert any(line.split()[:2] == ["yes", "75.0%"] for line in lines)
    strange = replace(sentence, known=np.zeros(4, bool))
    assert "Warning: no word of the text is known" in shown(Explanation((strange,), 0.5, None))


def test_one_bit_for_both_roles_is_one_column(sentence: MarkedSentence) -> None:
    assert sentence.probabilities is not None
    same = replace(sentence, selection=sentence.selection[[0, 0]])
    assert "head  dependent" in shown(Explanation((same,), 0.5, None))
    same = replace(same, probabilities=sentence.probabilities[[0, 0]])
    lines = shown(Explanation((same,), 0.5, None)).splitlines()
    assert lines[2].split() == ["token", "kept"]
    assert lines[3].split() == ["a", "0.90", "●"]


def test_a_score_has_no_classes(sentence: MarkedSentence) -> None:
    text = shown(Explanation((sentence, sentence), 3.14159, None))
    assert "prediction: 3.142" in text
    assert "%" not in text.partition("prediction")[2]


def test_of_many_candidates_the_likeliest_are_shown(sentence: MarkedSentence) -> None:
    shares = {f"word{n}": n / 66 for n in range(12)}
    text = shown(Explanation((sentence,), "word11", shares)).partition("prediction")[2]
    names = [line.split()[0] for line in text.splitlines()[1:]]
    assert names == [f"word{n}" for n in range(11, 1, -1)]
