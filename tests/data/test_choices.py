"""Marks and questions: from a source through the shards into a batch, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, Words
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

SENTENCE = LabelSpec("sentence")
GOOD = RawExample(
    "g",
    (Words(("It", "rains", ".", "We", "swim", ".")), "Who swims?"),
    1,
    marks=(0, 0, 0, 1, 1, 1),
    file="f",
    row=7,
)
SHORT = RawExample("s", (("A", "b", "c"), ("d",)), "0", marks=(-1, 0, -1), file="f", row=8)


def prepared(out: Path, list_source: Any, rows: Sequence[RawExample], spec: Any) -> Prepared:
    prepare(list_source({"train": rows}, spec, sentences=2), out, dim=2)
    return open_prepared(out)


def test_marks_come_back_padded(tmp_path: Path, list_source: Any) -> None:
    rows = [replace(e, id=f"{e.id}{i}") for i in range(3) for e in (GOOD, SHORT)]
    data = prepared(tmp_path / "out", list_source, rows, SENTENCE)
    assert (data.labels.kind, data.manifest.splits["train"].known) == ("sentence", ("marks",))
    batch = data.split("train").batch([3, 0, 4])
    assert batch.labels.dtype == batch.marks.dtype == np.int64
    assert batch.labels.tolist() == [0, 1, 1]
    assert batch.marks.tolist() == [[-1, 0, -1, -1, -1, -1], *[[0, 0, 0, 1, 1, 1]] * 2]
    assert batch.questions is None
    assert data.split("train").words(0)[0][0] == "It"
    # Words are looked up in lower case, other given tokens are not.
    assert {"it", "A"} <= set(data.vocabulary.words)
    assert "It" not in data.vocabulary.words
    assert data.split("train").batch([]).marks.shape == (0, 0)


def test_questions_are_numbered_as_they_come(tmp_path: Path, list_source: Any) -> None:
    plain = [RawExample(str(i), ("q", "a"), "xy"[i % 2], question=q) for i, q in enumerate("zazba")]
    data = prepared(tmp_path / "out", list_source, plain, None)
    batch = data.split("train").batch([4, 0, 1, 2, 3])
    assert batch.questions.dtype == np.int64
    assert batch.questions.tolist() == [1, 0, 1, 0, 2]
    assert batch.marks is None
    plain[2] = replace(plain[2], question=None, file="f", row=3)
    with pytest.raises(DataError, match="f, row 3: some examples have 'question' and some"):
        prepared(tmp_path / "none", list_source, plain, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"marks": None}, "it lacks marks where labels are sentence"),
        ({"marks": (0, 0, 0, 1, 1)}, "5 marks for 6 tokens"),
        ({"marks": (0, 0, 0, 2, 2, 2)}, "the marks are not -1 and all of 0, 1, 2"),
        ({"marks": (-2, 0, 0, 1, 1, 1)}, "the marks are not -1 and all of 0, 1, 2"),
        ({"marks": (-1,) * 6}, "no token has the mark 1 that is the label"),
        ({"label": 2}, "no token has the mark 2 that is the label"),
        ({"label": -1}, "the label '-1' is not the number of a mark"),
        ({"label": "0.5"}, "the label '0.5' is not the number of a mark"),
        ({"label": "second"}, "the label 'second' is not the number of a mark"),
        ({"label": float("inf")}, "the label 'inf' is not the number of a mark"),
    ],
)
def test_rows_that_mark_no_choice(
    tmp_path: Path, list_source: Any, changes: dict[str, Any], message: str
) -> None:
    rows = [replace(GOOD, **changes), SHORT]
    with pytest.raises(DataError, match=message) as error:
        prepared(tmp_path / "out", list_source, rows, SENTENCE)
    assert error.value.where == "f, row 7"
