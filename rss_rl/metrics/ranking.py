"""The ranks of right answers among the rival answers to a question: MAP and MRR.

Answers are sorted by the log-odds of the last class, which stands for a right answer.
"""

from __future__ import annotations

from functools import partial

from rss_rl.components import Component, Measure, NoOptions
from rss_rl.metrics.columns import ColumnMetric
from rss_rl.metrics.protocol import MetricSetup, Scored
from rss_rl.ops.scores import ranking_metrics
from rss_rl.types import Array


def _ranking(setup: MetricSetup, options: NoOptions) -> ColumnMetric:
    columns = partial(_answers, len(setup.labels.names) - 1)
    return ColumnMetric(("map", "mrr", "map_all", "mrr_all"), columns, ranking_metrics)


def _answers(right_class: int, scored: Scored) -> tuple[Array, ...]:
    """Log-odds of the answers, whether they are right, and the number of their question."""
    batch = scored.batch
    if batch.questions is None or scored.odds is None:
        return ()
    return scored.odds, batch.labels == right_class, batch.questions


RANKING = Component(
    kind="metric",
    name="ranking",
    help="Mean average precision and reciprocal rank of right answers among their rivals.",
    build=_ranking,
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
