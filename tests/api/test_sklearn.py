"""The scikit-learn estimator: pipelines, searches, clones, pickles, pairs, and what is refused."""

from __future__ import annotations

import pickle
import signal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import rss_rl
from rss_rl.errors import DataError, RssError
from rss_rl.sklearn import SelectiveClassifier
from rss_rl.training.trainer import Updated

SMALL = {
    "model.hidden": 16, "model.head_hidden": 16, "policy.options.hidden": 16, "batch_size": 16,
    **{f"phases.{phase}.steps": 40 for phase in range(4)},
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("no_charts")
BRIEF = SMALL | {f"phases.{phase}.steps": 2 for phase in range(4)}


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
    for seed in (0, 1):
        model = SelectiveClassifier(keep=0.3, settings=BRIEF, seed=seed)
        table = pd.DataFrame({"text": [*rows, "a stone"], "kind": [*labels, "mineral"]})
        assert "mineral" in model.fit(table["text"], table[["kind"]]).classes_
    with pytest.raises(DataError, match=r"X, row 60: nan is no text"):
        model.fit([*rows, float("nan")], [*labels, "plant"])
    before = model.predict(rows).tolist()
    for refused in (labels[:2], [*labels[:-1], None], [*labels[:-1], 1]):
        with pytest.raises(DataError):
            model.fit(rows[: len(refused)], refused)
        assert model.classes_.tolist() == ["animal", "mineral", "plant"]
        assert model.predict(rows).tolist() == before


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
    model = SelectiveClassifier(settings=BRIEF)
    assert clone(model).get_params() == model.get_params()
    with pytest.warns(SkipTestWarning, match="string=True"):
        check_estimator(model)
    for method in ("predict", "predict_proba", "select"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(rows)
    pipeline = make_pipeline(FunctionTransformer(), model)
    search = GridSearchCV(pipeline, {"selectiveclassifier__keep": [0.2, 0.5]}, cv=2)
    search.fit(np.array(rows, dtype=object), pd.Series(labels))
    assert len(search.cv_results_["params"]) == 2
    assert search.predict(pd.Series(rows[:3])).shape == (3,)


def test_rows_of_no_weight_are_as_if_they_were_not_there() -> None:
    rows, labels = texts(48)
    weights = np.arange(48) % 3  # 0, 1, 2, ...
    model = SelectiveClassifier(settings=BRIEF, class_weight="balanced")
    counted = np.flatnonzero(weights)
    twins = [
        clone(model).fit([rows[n] for n in kept], [labels[n] for n in kept], weights[kept])
        for kept in (np.arange(48), counted)
    ]
    first, second = (twin.predict_proba(rows) for twin in twins)
    np.testing.assert_array_equal(first, second)
    unweighed = model.fit([rows[n] for n in counted], [labels[n] for n in counted])
    assert not np.array_equal(unweighed.predict_proba(rows), first)
    for wrong in (weights[:5], -weights, np.full(48, np.nan), "all", weights * 0):
        with pytest.raises(DataError, match="sample_weight: are"):
            model.fit(rows, labels, wrong)


def test_pairs_are_two_columns() -> None:
    rows, labels = texts(60)
    table = pd.DataFrame({"a": rows, "b": rows[::-1]})
    few = {"model.hidden": 8, "phases.0.steps": 2, "phases.1.steps": 2}
    model = SelectiveClassifier(settings=few).fit(table, labels)
    (pair,) = model.select(table[:1])
    assert len(pair) == 2


@pytest.mark.parametrize(
    ("kind", "dtypes"),
    [
        (["b", "a"], [None, "category", "string"]),
        ([True, False], [None, "category", "boolean", "bool[pyarrow]"]),
        ([7, 3], ["category", "Int64"]),
        ([2**53, 2**53 + 1], [None]),
        ([1.5, 2.0], ["Float64"]),
        ([*pd.period_range("2020Q1", periods=2, freq="Q")], [None]),
        ([*pd.to_datetime(["2020", "2021"])], [None]),
    ],
)
def test_predicted_classes_have_the_type_of_the_labels(kind: Any, dtypes: Any) -> None:
    rows, labels = texts(24)
    for dtype in dtypes:
        y = pd.Series([kind[label == "plant"] for label in labels], dtype=dtype)
        model = SelectiveClassifier(settings=BRIEF).fit(rows, y)
        assert model.classes_.tolist() == sorted(kind)
        predicted = model.predict(rows)
        assert {type(label) for label in pd.Series(predicted).tolist()} <= {type(kind[0])}
        right = np.mean([one == other for one, other in zip(pd.Series(predicted), y, strict=True)])
        assert model.score(rows, y) == pytest.approx(right)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NaT, pd.NA, "", " ", "nan"])
def test_a_missing_label_is_no_class(missing: Any) -> None:
    rows, labels = texts(24)
    for y in (labels, pd.Series(labels, dtype="category").cat.add_categories("")):
        given = [*y[:3], missing, *y[4:], missing]
        with pytest.raises(DataError, match="y, row 3, 24: missing labels: 2"):
            SelectiveClassifier().fit([*rows, "a moss"], given)
    with pytest.raises(DataError, match="y, row 1"):
        SelectiveClassifier().fit(rows[:2], np.ma.masked_array([1, 2], [False, True]))


@pytest.mark.parametrize("phase", [0, 3])
def test_ctrl_c_ends_a_search(phase: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a score of NaN nor an error about the folder of the run, which is gone."""
    fits: list[Any] = []

    def fit(*given: Any, **how: Any) -> Any:
        fits.append(how)
        return rss_rl_fit(*given, **how, callbacks=[press])

    def press(event: Any) -> None:
        if isinstance(event, Updated) and event.update == 1 + 2 * phase:
            signal.raise_signal(signal.SIGINT)

    rss_rl_fit = rss_rl.fit
    monkeypatch.setattr(rss_rl, "fit", fit)
    rows, labels = texts(40)
    search = GridSearchCV(SelectiveClassifier(settings=BRIEF), {"keep": [0.2, 0.5]}, cv=2)
    with pytest.raises(KeyboardInterrupt):
        search.fit(rows, labels)
    assert len(fits) == 1


@pytest.mark.parametrize(
    ("rows", "labels", "fragment"),
    [
        ("one text", ["a"], "expected texts"),
        ([["a", "b", "c"]] * 2, ["a", "b"], "neither texts nor pairs"),
        (["a", "b"], ["a"], "2 texts and 1 classes"),
        (["a", "b"], ["a", "a"], "one class alone"),
        (["a", "b"], ["up", "up\u200b"], r"'up' and 'up\\u200b' are two ways to write one class"),
    ],
)
def test_what_is_no_text_or_class_is_refused(rows: Any, labels: Any, fragment: str) -> None:
    with pytest.raises(DataError, match=fragment):
        SelectiveClassifier().fit(rows, labels)
    with pytest.raises(RssError):
        SelectiveClassifier(keep=2.0).fit(*texts(40))
