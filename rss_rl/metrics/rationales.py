"""Agreement of selections with the rationales that people marked, over all tokens of a split.

A token is kept as head, as dependent or as both. `rationale_f1_random` is the chance level: the F1
of the same selections moved to random tokens of their sentences. Of a pair, a text without a marked
token (such as the question about a passage) does not count.
"""

from __future__ import annotations

from rss_rl.components import Component, Measure, NoOptions
from rss_rl.metrics.protocol import MetricSetup, Scored
from rss_rl.ops.scores import precision_recall_f1


class _Rationales:
    names = ("rationale_precision", "rationale_recall", "rationale_f1", "rationale_f1_random")

    def __init__(self, setup: MetricSetup, options: NoOptions) -> None:
        self._known = False
        self._found = self._found_at_random = self._kept = self._wanted = 0

    def add(self, scored: Scored) -> None:
        slots = scored.batch.rationale or ()
        for slot, rationale in enumerate(slots):
            self._known = True
            counts = rationale.any(1, keepdims=True) | (len(slots) == 1)  # [B, 1]
            union = scored.selections[slot].any(1) & counts  # [B, N_s]
            self._found += int((union & rationale).sum())
            self._found_at_random += int((scored.moved[slot].any(1) & rationale).sum())
            self._kept += int(union.sum())
            self._wanted += int(rationale.sum())

    def result(self) -> dict[str, float]:
        if not self._known:
            return {}
        scores = precision_recall_f1(self._found, self._kept, self._wanted)
        at_random = precision_recall_f1(self._found_at_random, self._kept, self._wanted)
        return dict(zip(self.names, (*scores, at_random[2]), strict=True))


RATIONALES = Component(
    kind="metric",
    name="rationales",
    help="Precision, recall and F1 of kept tokens against those that people marked.",
    build=_Rationales,
    capabilities=frozenset({"rationales", "standard"}),
    measures=tuple(
        Measure(f"rationale_{name}", label, meaning, unit="share", places=3, brief=name == "f1")
        for name, label, meaning in (
            ("precision", "precision", "share of the kept tokens that are in the rationale"),
            ("recall", "recall", "share of the rationale's tokens that are kept"),
            ("f1", "F1", "harmonic mean of rationale precision and recall"),
            ("f1_random", "random F1", "F1 of as many randomly selected tokens"),
        )
    ),
)
