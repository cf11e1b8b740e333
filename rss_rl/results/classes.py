"""What a run gets right class by class, and whether its confidence can be believed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

_BINS = 10


def class_scores(predictions: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Precision, recall, F1 and rows of each class, and how often it was taken for each.

    Args:
        predictions: with columns `label` and `predicted`, numbers of classes.
        names: of all classes.

    Returns:
        A line per class in the order of `names`: precision, recall, f1, rows, and a column with
        the name of each class, the rows that were taken for it. NaN: precision of a class that was
        never predicted, recall of one without rows.
    """
    numbers = range(len(names))
    read = predictions["label"], predictions["predicted"]
    precision, recall, f1, rows = precision_recall_fscore_support(
        *read, labels=numbers, zero_division=np.nan
    )
    found = pd.DataFrame(
        {"precision": precision, "recall": recall, "f1": f1, "rows": rows}, index=list(names)
    )
    taken = pd.DataFrame(confusion_matrix(*read, labels=numbers), list(names), list(names))
    return pd.concat([found, taken], axis=1)


def calibration(predictions: pd.DataFrame) -> pd.DataFrame:
    """Confidence, accuracy and rows in ten equal intervals of the confidence, empty ones left out.

    Args:
        predictions: with columns `confidence` and `error`, 0 or False where right.
    """
    number = np.minimum((predictions["confidence"] * _BINS).astype(int), _BINS - 1)
    right = predictions.assign(accuracy=1.0 - predictions["error"].astype(float))
    bins = right.groupby(number)
    means = bins[["confidence", "accuracy"]].mean()
    return means.assign(rows=bins.size()).reset_index(drop=True)


def calibration_error(bins: pd.DataFrame) -> float:
    """Expected calibration error (Naeini et al. 2015): mean distance of confidence and accuracy
    over the rows; bins: see `calibration`."""
    return float(np.average((bins["confidence"] - bins["accuracy"]).abs(), weights=bins["rows"]))


def accuracy_interval(accuracy: float, rows: int) -> tuple[float, float]:
    """Wilson's 95% interval of an accuracy that was measured on `rows` rows."""
    found = binomtest(round(accuracy * rows), rows).proportion_ci(method="wilson")
    return float(found.low), float(found.high)
