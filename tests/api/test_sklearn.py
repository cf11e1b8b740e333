"""The scikit-learn estimator: pipelines, searches, clones, pickles, pairs, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from rss_rl.errors import DataError, RssError
from rss_rl.sklearn import SelectiveClassifier

SMALL = {
    "model.hidden": 16, "model.head_hidden": 16, "policy.options.hidden": 16, "batch_size": 16,
    **{f"phases.{phase}.steps": 40 for phase in range(4)},
}  # fmt: skip


def texts(count: int) -> tuple[list[str], list[str]]:
    """Sentences in which one word tells the class, an animal or a plant."""
    draw, kinds = np.random.default_rng(0), {"animal": "otter heron fox", "plant": "oak fern moss"}
    rows, labels = [], []
    for number in range(count):
        label = ["plant", "animal"][number % 2]
        words = [*draw.choice(["near", "the", "old", "river", "we", "saw", "it", "again"], 5)]
        words.insert(int(draw.integers(5)), str(draw.choice(kinds[label].split())))
        rows.append(" ".join(words))
        labels.append(label)
    return rows, labels


@pytest.fixture(scope="module")
def fitted() -> Any:
    rows, labels = texts(160)
    return SelectiveClassifier(keep=0.3, settings=SMALL).fit(rows, labels)


def test_it_predicts_and_selects(fitted: Any) -> None:
    rows, labels = texts(40)
    assert fitted.classes_.tolist() == ["animal", "plant"]
    assert fitted.score(rows, labels) > 0.65  # of two classes, after a few seconds
    chances = fitted.predict_proba(rows)
    np.testing.assert_allclose(chances.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(fitted.classes_[chances.argmax(1)], fitted.predict(rows))
    (kept,) = fitted.select(rows[:1], share=0.1)
    assert len(kept) == 1
    assert kept[0] in rows[0].split()
    pairs = zip(fitted.select(rows), rows, strict=True)
    assert all(set(words) <= set(row.split()) for words, row in pairs)
    assert fitted.report_["thresholded"]["accuracy"] > 0.5


def test_a_class_of_one_row_is_trained_on_and_what_is_no_text_is_named() -> None:
    rows, labels = texts(60)
    brief = SMALL | {f"phases.{phase}.steps": 2 for phase in range(4)}
    for seed in (0, 1):
        model = SelectiveClassifier(keep=0.3, settings=brief, seed=seed)
        table = pd.DataFrame({"text": [*rows, "a stone"], "kind": [*labels, "mineral"]})
        assert "mineral" in model.fit(table["text"], table[["kind"]]).classes_
    with pytest.raises(DataError, match=r"X, row 60: nan is no text"):
        model.fit([*rows, float("nan")], [*labels, "plant"])
    with pytest.raises(DataError, match="single row"):
        model.fit(rows[:2], labels[:2])


def test_it_pickles_by_export(fitted: Any) -> None:
    rows, _ = texts(10)
    state = pickle.dumps(fitted)
    assert b"torch" not in state
    again = pickle.loads(state)
    np.testing.assert_array_equal(again.predict_proba(rows), fitted.predict_proba(rows))
    unfitted = pickle.loads(pickle.dumps(SelectiveClassifier(keep=0.2)))
    assert unfitted.keep == 0.2


def test_it_goes_into_pipelines_and_searches() -> None:
    rows, labels = texts(80)
    few = SMALL | {f"phases.{phase}.steps": 2 for phase in range(4)}
    model = SelectiveClassifier(settings=few)
    assert clone(model).get_params() == model.get_params()
    pipeline = make_pipeline(FunctionTransformer(), model)
    search = GridSearchCV(pipeline, {"selectiveclassifier__keep": [0.2, 0.5]}, cv=2)
    search.fit(np.array(rows, dtype=object), pd.Series(labels))
    assert len(search.cv_results_["params"]) == 2
    assert search.predict(pd.Series(rows[:3])).shape == (3,)


def test_pairs_are_two_columns_and_classes_are_of_any_type() -> None:
    rows, labels = texts(60)
    table = pd.DataFrame({"a": rows, "b": rows[::-1]})
    few = {"model.hidden": 8, "phases.0.steps": 2, "phases.1.steps": 2}
    model = SelectiveClassifier(settings=few).fit(table, np.array(labels) == "plant")
    assert model.predict(table).dtype == np.bool_
    (pair,) = model.select(table[:1])
    assert len(pair) == 2


@pytest.mark.parametrize(
    ("rows", "labels", "fragment"),
    [
        ("one text", ["a"], "expected texts"),
        ([["a", "b", "c"]] * 2, ["a", "b"], "neither texts nor pairs"),
        (["a", "b"], ["a"], "2 texts and 1 classes"),
        (["a", "b"], ["a", "a"], "one class alone"),
    ],
)
def test_what_is_no_text_or_class_is_refused(rows: Any, labels: Any, fragment: str) -> None:
    with pytest.raises(DataError, match=fragment):
        SelectiveClassifier().fit(rows, labels)
    with pytest.raises(RssError):
        SelectiveClassifier(keep=2.0).fit(*texts(40))
