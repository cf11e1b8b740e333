"""What is wrong with a file is said of the file, with a remedy that helps."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rss_rl.data.column_files import Columns, column_files
from rss_rl.data.records import column_names, read_records
from rss_rl.errors import DataError


def whatever_reads(path: Path) -> list[str]:
    """The messages of all that may read a table first."""
    output = []
    for read in (
        lambda: column_names(path),
        lambda: list(read_records(path)),
        lambda: column_files([path], Columns(("text",), "label")),
    ):
        with pytest.raises(DataError) as error:
            read()
        assert str(path) in error.value.where
        assert error.value.remedy
        output.append(str(error.value))
    return output


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl", "t.csv.gz"])
def test_a_file_that_is_not_there_is_not_cut_short(tmp_path: Path, name: str) -> None:
    for output in whatever_reads(tmp_path / name):
        assert "No such file" in output
        assert "Check the path" in output
        assert "cut short" not in output
    (tmp_path / name).mkdir()
    for output in whatever_reads(tmp_path / name):
        assert "directory" in output
        assert "cut short" not in output


def test_a_parquet_file_that_is_cut_short_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": ["a"], "label": ["b"]}), path)
    path.write_bytes(path.read_bytes()[:-10])
    assert all("cut short" in output for output in whatever_reads(path))
