"""Measures of predictions and selections, on numpy arrays.

Legend: n examples or tokens. Correlations come from scipy.
"""

from __future__ import annotations

__all__ = ["precision_recall_f1", "score_metrics"]

import numpy as np
from scipy import stats

from rss_rl.types import Array


def score_metrics(predicted: Array, gold: Array) -> dict[str, float]:
    """pearson, spearman and mse of predicted scores [n]; an undefined correlation is left out."""
    predicted, gold = predicted.astype(np.float64), gold.astype(np.float64)
    metrics = {"mse": float(np.mean((predicted - gold) ** 2))}
    if len(gold) > 1 and np.ptp(predicted) > 0 and np.ptp(gold) > 0:
        metrics["pearson"] = float(stats.pearsonr(predicted, gold).statistic)
        metrics["spearman"] = float(stats.spearmanr(predicted, gold).statistic)
    return metrics


def precision_recall_f1(found: int, kept: int, wanted: int) -> tuple[float, float, float]:
    """Precision, recall and F1 over tokens: `found` of the `kept` ones are among the `wanted`."""
    precision = found / kept if kept else 0.0
    recall = found / wanted if wanted else 0.0
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0
