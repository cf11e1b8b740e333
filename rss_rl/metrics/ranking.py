"""The ranks of right answers among the rival answers to a question: MAP and MRR.

Answers are sorted by the log-odds of the last class, which stands for a right answer.
"""

from __future__ import annotations

import numpy as np

from rss_rl.components import Component, Measure, NoOptions
from rss_rl.metrics.protocol import MetricSetup, Scored
from rss_rl.ops.scores import ranking_metrics
from rss_rl.types import Array


class _Ranking:
    names = ("map", "mrr", "map_all", "mrr_all")

    def __init__(self, setup: MetricSetup, options: NoOptions) -> None:
        self._right_class = len(setup.labels.names) - 1
        self._odds: list[Array] = []
        self._right: list[Array] = []
        self._questions: list[Array] = []

    def add(self, scored: Scored) -> None:
        if scored.batch.questions is not None and scored.odds is not None:
            self._odds.append(scored.odds)
            self._right.append(scored.batch.labels == self._right_class)
            self._questions.append(scored.batch.questions)

    def result(self) -> dict[str, float]:
        if not self._odds:
            return {}
        parts = (self._odds, self._right, self._questions)
        return ranking_metrics(*(np.concatenate(part) for part in parts))


RANKING = Component(
    kind="metric",
    name="ranking",
    help="Mean average precision and reciprocal rank of right answers among their rivals.",
    build=_Ranking,
    capabilities=frozenset({"classes", "questions", "predictions", "standard"}),
    source="Voorhees and Tice, The TREC-8 question answering track, LREC 2000",
    measures=(
        Measure(
            "map",
            "MAP",
            "mean average precision over questions with right and wrong answers",
            brief=True,
        ),
        Measure("mrr", "MRR", "mean reciprocal rank of the first right answer over the same"),
        Measure(
            "map_all",
            "MAP, all",
            "`map` over all questions, 0 for questions without a right answer",
        ),
        Measure(
            "mrr_all",
            "MRR, all",
            "`mrr` over all questions, 0 for questions without a right answer",
        ),
    ),
)
