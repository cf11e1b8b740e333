"""Tables of other libraries as rows: what a column says it is, and splits that belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rss_rl.api.adapting import guess_task
from rss_rl.api.rows import split_files
from rss_rl.data.tables import Record, read_records
from rss_rl.errors import DataError


class HubDataset:
    """As the library datasets has it: a table, and the names of its classes."""

    def __init__(self, labels: list[int]) -> None:
        self.features = {
            "text": SimpleNamespace(dtype="string"),
            "label": SimpleNamespace(names=[f"class {n}" for n in range(77)]),
        }
        self._table = pa.table({"text": [f"t{n}" for n in labels], "label": labels})

    def with_format(self, kind: str) -> pa.Table:
        assert kind == "arrow"
        return self._table

    def __len__(self) -> int:
        return self._table.num_rows


def written(rows: Any, folder: Path, columns: Sequence[str] = ("label",)) -> dict[str, Path]:
    found = split_files({"rows": rows}, folder, columns)
    return {name: path for name, (path,) in found.items()}


def test_class_labels_are_classes_with_their_names(tmp_path: Path) -> None:
    path = written(HubDataset([3, 76, -1]), tmp_path)["rows"]
    assert pq.read_table(path)["label"].to_pylist() == ["class 3", "class 76", None]
    assert guess_task([path], "label") == "classes"


@pytest.mark.parametrize("kind", ["category", "bool"])
def test_categories_and_yes_and_no_are_classes(tmp_path: Path, kind: str) -> None:
    numbers = pd.Series(range(40)) if kind == "category" else pd.Series([0, 1] * 20)
    path = written(pd.DataFrame({"label": numbers.astype(kind)}), tmp_path)["rows"]
    assert guess_task([path], "label") == "classes"


@pytest.mark.parametrize(
    "value", [True, 1.0, pd.Period("2020Q1"), pd.Interval(0.0, 1.0), pd.Timedelta("1h")]
)
def test_labels_are_named_as_pandas_shows_them(tmp_path: Path, value: Any) -> None:
    """So that train and dev agree whatever the types of their columns."""
    for values in (pd.Series([value, None]), pd.Series([value, None], dtype=object)):
        for column in (values, values.astype("category")):
            path = written(pd.DataFrame({"label": column}), tmp_path)["rows"]
            rows = [row.values["label"] for row in read_records(path) if isinstance(row, Record)]
            assert (str(rows[0]), rows[1]) == (str(values[0]), None)


def test_a_mapping_of_splits_is_taken_as_such(tmp_path: Path) -> None:
    splits = {name: HubDataset([n]) for n, name in enumerate(("train", "validation", "test"))}
    found = written(splits, tmp_path, ["text"])
    assert {name: pq.read_table(path)["text"].to_pylist() for name, path in found.items()} == {
        "rows": ["t0"],
        "dev": ["t1"],
        "test": ["t2"],
    }


class HubStream:
    """As the library datasets streams one: rows to walk over, and no table."""

    def __init__(self, labels: list[int]) -> None:
        table = HubDataset(labels)
        self.features, self._rows = table.features, table.with_format("arrow").to_pylist()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def with_format(self, kind: str) -> HubStream:
        return self


def test_rows_of_a_stream(tmp_path: Path) -> None:
    path = written(HubStream([3, 76]), tmp_path)["rows"]
    assert pq.read_table(path)["label"].to_pylist() == ["class 3", "class 76"]


@pytest.mark.parametrize("rows", [pd.Series(["a"]), {"text": ["a"]}, 3, [{"label": 10**400}]])
def test_what_is_no_table_is_named(tmp_path: Path, rows: Any) -> None:
    with pytest.raises(DataError, match=f"the {type(rows).__name__} cannot be read as a table"):
        written(rows, tmp_path)


NAMES = ["text", "label"]
CELLS = {"text": ["a", "b"], "label": ["x", "y"]}
BATCH = pa.table(CELLS)
STRANGE: dict[str, Any] = {
    "mixed objects": pd.DataFrame(CELLS).assign(other=[1, "one"]),
    "categories of tuples": pd.DataFrame(CELLS).assign(
        other=pd.Categorical.from_codes([0, 1], pd.Index([(1, 2), (3, 4)], tupleize_cols=False))
    ),
    "complex": pd.DataFrame(CELLS).assign(other=[1j, 2j]),
    "two of a name": pd.DataFrame([*CELLS.values(), [1, 2], [3, 4]], [*NAMES, "c", "c"]).T,
    "run ends": BATCH.append_column("other", pc.run_end_encode(pa.array([1, 1]))),
    "intervals": BATCH.append_column(
        "other", pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval())
    ),
    "late": BATCH.append_column("other", pa.array([2**60, 1], pa.timestamp("us"))),
    "two in Arrow": BATCH.append_column("c", pa.array([1, 2])).append_column("c", pa.array([1, 2])),
    "mappings": [{"text": "a", "label": "x", "other": 1}, {"text": "b", "label": "y", "other": {}}],
    "numbered": [{"text": "a", "label": "x", 7: 1}, {"text": "b", "label": "y", 7: [object()]}],
}


@pytest.mark.parametrize("rows", STRANGE.values(), ids=STRANGE)
def test_columns_that_nobody_named_are_dropped_before_anything_else(
    tmp_path: Path, rows: Any
) -> None:
    found = pq.read_table(written(rows, tmp_path, NAMES)["rows"])
    assert found.to_pydict() == CELLS
    with pytest.raises(DataError, match=r"no column 'lable'; did you mean 'label'.*text, label"):
        written(rows, tmp_path, ["lable"])
