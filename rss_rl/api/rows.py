"""Tables of any kind as files, and what their columns say: what `prepare` and `fit` read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rss_rl.api.options import Rows, TableOptions
from rss_rl.data.checks import LARGEST_SCORE
from rss_rl.data.column_files import Columns, column_files
from rss_rl.data.sources import Source, SourceRequest, known_sources, named_source
from rss_rl.data.tables import require_columns
from rss_rl.durable import disk_errors
from rss_rl.errors import DataError
from rss_rl.storage import is_uri
from rss_rl.types import LabelSpec


def make_source(
    data: Rows,
    text: str | int | None,
    label: str | int | None,
    table: TableOptions,
    request: SourceRequest,
    scratch: Path,
) -> Source:
    """The source that `data` names, or the rows that `data` are.

    Args:
        table: how rows are read. request: for a source that is named.
        scratch: folder for a file of rows that are in none.

    Raises:
        DataError: unknown data, or an option that would be ignored.
    """
    _refuse_addresses(data)
    if name := _source_name(data, by_columns=text is not None or label is not None):
        named: dict[str, Any] = {"--text": text, "--label": label}
        named |= {f"--{key.replace('_', '-')}": value for key, value in table.items()}
        if named.get("--task") == "classes":
            del named["--task"]
        _refuse(named, "files of your own")
        return named_source(name, request)
    _refuse({"--from": request.path, "--option": request.options or None}, "known datasets")
    splits = {"rows": data, "dev": table.get("dev"), "test": table.get("test")}
    columns = named_columns(text, label, table)
    files = split_files(splits, scratch, columns.all())
    return column_files(
        files["rows"],
        columns,
        _label_spec(table.get("task") or "classes", table.get("low"), table.get("high")),
        dev=_only(files.get("dev")),
        test=_only(files.get("test")),
        shares=split_shares(table),
        seed=table.get("split_seed", 0),
    )


def named_values(options: Mapping[str, Any] | Sequence[str]) -> Mapping[str, Any]:
    """Options of a source, NAME=VALUE, as a mapping.

    Raises:
        DataError: one has no value.
    """
    if isinstance(options, Mapping):
        return options
    settings = {}
    for item in options:
        name, sign, value = item.partition("=")
        if not sign:
            raise DataError(f"--option {item} has no value", remedy="Write it as NAME=VALUE")
        settings[name] = value
    return settings


def _source_name(data: Rows, *, by_columns: bool) -> str | None:
    """The name of a source, if `data` is one; where columns are named, only that of a known one."""
    names = [data] if isinstance(data, str) else data
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        return None
    known = known_sources()
    of_sources = [n for n in names if n in known]
    if not of_sources and not by_columns:
        # A name that is not a file and has no suffix is taken for a source.
        of_sources = [n for n in names if not Path(n).exists() and (":" in n or not Path(n).suffix)]
    if of_sources and len(names) > 1:
        raise DataError(f"'{names[1]}' is one too many", remedy="Prepare one dataset at a time")
    return of_sources[0] if of_sources else None


def _refuse(given: Mapping[str, Any], what: str) -> None:
    """Refuse options that would be ignored."""
    for name, value in given.items():
        if value is not None and value is not False and not (isinstance(value, list) and not value):
            raise DataError(f"{name} is for {what}", remedy="Leave it out")


def _refuse_addresses(data: Rows) -> None:
    """Refuse URLs: a table is read from a file on this machine."""
    for item in data if isinstance(data, list | tuple) else [data]:
        if isinstance(item, str) and is_uri(item):
            raise DataError(
                "is an address, not a file", where=item, remedy="Download it, and give the file"
            )


def named_columns(text: str | int | None, label: str | int | None, table: TableOptions) -> Columns:
    """The columns that are named.

    Raises:
        DataError: the text or the label is not.
    """
    texts = tuple(str(name) for name in (text, table.get("text_b")) if name is not None)
    if not texts or not all(texts) or label is None or label == "":
        raise DataError(
            "the columns of the text and the label are not named",
            remedy="Name them: --text COLUMN --label COLUMN, and --text-b COLUMN for pairs",
        )
    marks = (table.get("rationale"), table.get("rationale_b"))
    rationale = tuple(name for name in marks if name)
    return Columns(texts, str(label), table.get("id"), rationale, table.get("weight"))


def _label_spec(task: str, low: float | None, high: float | None) -> LabelSpec | None:
    """The specification of a label column; None: classes, taken from the training rows.

    Raises:
        DataError: contradictory settings.
    """
    if task not in ("classes", "score"):
        raise DataError(f"task '{task}' is neither classes nor score")
    if task == "classes":
        if low is not None or high is not None:
            raise DataError("--low and --high are for scores", remedy="Add --task score")
        return None
    if low is None and high is None:
        return LabelSpec("score", low=-math.inf, high=math.inf)
    if low is None or high is None or not -math.inf < low < high < math.inf:
        raise DataError("a score needs finite bounds, low < high", remedy="Give --low and --high")
    if max(abs(low), abs(high)) > LARGEST_SCORE:
        raise DataError("--low or --high does not fit 32 bits", remedy="Divide the scores")
    return LabelSpec("score", low=low, high=high)


def split_shares(table: TableOptions) -> list[float]:
    """Shares of train, dev and test in a random split.

    Raises:
        DataError: they are no numbers.
    """
    split = table.get("split", "0.8/0.1/0.1")
    try:
        parts = split.split("/") if isinstance(split, str) else split
        return [float(share) for share in parts]
    except ValueError as error:
        raise DataError(
            f"--split {split} is no list of shares", remedy="Write it as 0.8/0.1/0.1"
        ) from error


def _only(files: Sequence[Path] | None) -> Path | None:
    if files is not None and len(files) != 1:
        raise DataError(f"{len(files)} files for one split", remedy="Join them into one")
    return None if files is None else files[0]


def split_files(
    splits: Mapping[str, Rows | None], folder: Path, columns: Sequence[str]
) -> dict[str, list[Path]]:
    """The named files of each split that is given; of other rows the named columns are written to a
    file in `folder`.

    The first may be a mapping of splits, such as a Hugging Face DatasetDict: its `train`, and its
    `validation` (or `dev`) and `test` unless these are given.

    Raises:
        DataError: rows of an unknown kind, or none.
    """
    rows = splits["rows"]
    _refuse_addresses(rows)
    if isinstance(rows, Mapping) and "train" in rows:
        dev = rows.get("validation", rows.get("dev"))
        own = {"rows": rows["train"], "dev": dev, "test": rows.get("test")}
        asked = {name: given for name, given in splits.items() if given is not None}
        splits = own | {name: given for name, given in asked.items() if name != "rows"}
    return {
        name: _row_files(rows, folder / f"{name}.parquet", columns)
        for name, rows in splits.items()
        if rows is not None
    }


def _row_files(rows: Rows, path: Path, columns: Sequence[str]) -> list[Path]:
    files = [rows] if isinstance(rows, str | Path) else rows
    if isinstance(files, list | tuple) and files and all(isinstance(f, str | Path) for f in files):
        for name in (name for name in files if not os.path.exists(name)):
            dataset = f"; for the dataset of this name: rss-rl data prepare {name}"
            remedy = f"Check the path{dataset if str(name) in known_sources() else ''}"
            raise DataError("there is no such file", where=str(name), remedy=remedy)
        return [Path(file) for file in files]
    table = _table(rows, columns)
    with disk_errors(path, "cannot be written", "Name a directory with space in TMPDIR", DataError):
        pq.write_table(table, path)
    return [path]


def _table(rows: Any, columns: Sequence[str]) -> pa.Table:
    """The named columns of rows of any kind; others are dropped before anything is converted.

    Raises:
        DataError: rows of an unknown kind, none, or without such a column.
    """
    try:
        found = _arrow(rows, columns)
    except (AttributeError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise DataError(
            f"the {type(rows).__name__} cannot be read as a table: {str(error)[:200]}",
            remedy="Give a file, mappings with the same keys, or a pandas, Arrow or Hugging Face"
            " table",
        ) from error
    if not found.num_rows:
        raise DataError("there are no rows", remedy="Give at least a few dozen")
    return _with_names(found, getattr(rows, "features", None) or {})


def _arrow(rows: Any, columns: Sequence[str]) -> pa.Table:
    """See `_table`."""
    if isinstance(rows, pa.Table):
        made = rows
    elif hasattr(rows, "iloc"):
        shown = _as_shown(rows.iloc[:, _places(rows.columns, columns)])
        made = pa.Table.from_pandas(shown, preserve_index=False)
    elif hasattr(rows, "to_arrow"):  # polars
        made = rows.select([rows.columns[place] for place in _places(rows.columns, columns)])
        made = made.to_arrow()
    elif hasattr(rows, "with_format") and hasattr(rows, "__len__"):
        made = rows.with_format("arrow")[:]  # Hugging Face, whose streams have no length
    else:
        listed = [{str(key): value for key, value in dict(row).items()} for row in rows]
        if not listed:
            return pa.table({})
        _places(dict.fromkeys(key for row in listed for key in row), columns)
        made = pa.Table.from_pylist([{key: row.get(key) for key in columns} for row in listed])
    made = made if isinstance(made, pa.Table) else pa.Table.from_batches(made)
    return made.select(_places(made.column_names, columns))


def _places(names: Iterable[Any], columns: Sequence[str]) -> list[int]:
    """Where the named columns are among all.

    Raises:
        DataError: one is missing.
    """
    have = [str(name) for name in names]
    require_columns(Path("the table"), have, columns)
    return [place for place, name in enumerate(have) if name in columns]


def _as_shown(frame: Any) -> Any:
    """A pandas frame with categories, periods and what else Arrow has other names for as text."""
    import pandas as pd

    frame = frame.infer_objects()
    for place, kind in enumerate(frame.dtypes):
        column = frame.iloc[:, place]
        if isinstance(kind, pd.CategoricalDtype):
            frame.isetitem(place, column.cat.rename_categories(str))
        elif isinstance(kind, pd.PeriodDtype | pd.IntervalDtype) or kind.kind == "m":
            frame.isetitem(place, column.map(str, na_action="ignore").astype("string"))
    return frame


def _with_names(table: pa.Table, features: Mapping[str, Any]) -> pa.Table:
    """The table with names of classes: text for categories, and for Hugging Face's ClassLabel."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):  # as text: Parquet forgets categories that are not
            shown = [None if value is None else str(value) for value in table[place].to_pylist()]
            values = pa.array(shown, pa.string()).dictionary_encode()
            table = table.set_column(place, field.name, values)
    for name, feature in features.items():
        names = getattr(feature, "names", None)
        if names and name in table.column_names:
            numbers = table[name].combine_chunks()
            known = pc.if_else(pc.greater_equal(numbers, 0), numbers, None)  # -1: not labelled
            column = pa.DictionaryArray.from_arrays(known.cast(pa.int32()), list(names))
            table = table.set_column(table.column_names.index(name), name, column)
    return table
