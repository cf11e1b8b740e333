"""Table cells for measures of the agreement with people."""

from __future__ import annotations

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
_SHARES = {"accuracy", "accuracy_all", "kept"}


def format_agreement(name: str, value: float | None) -> str:
    """A value as shown in tables; `-` for None."""
    if value is None:
        return "-"
    return f"{value:.1%}" if name in _SHARES else f"{value:.3f}"
