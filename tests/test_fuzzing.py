"""A short campaign of damaged input, and what longer ones found."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing import campaign, targets

from rss_rl.data.records import column_names, column_types, read_records
from rss_rl.data.vector_files import check_vectors, vector_lines
from rss_rl.errors import DataError


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_damaged_input_is_read_or_refused() -> None:
    for name, outcome in campaign(2000, 400.0, seed=1).items():
        serious = {key: found for key, found in outcome.findings.items() if key != "slow"}
        assert not serious, (name, serious)
        assert outcome.refused, name


def test_every_parser_reads_its_sound_inputs(tmp_path: Path) -> None:
    """Else nothing would be told by what it refuses."""
    for name, target in targets().items():
        for seed in target.seeds:
            (folder := tmp_path / name).mkdir(exist_ok=True)
            target.read(seed, folder)


@pytest.mark.parametrize("width", ["9223372036854775808", "9" * 17, "9" * 5000])
def test_a_width_that_no_vector_has(width: str, tmp_path: Path) -> None:
    text, binary = tmp_path / "v.txt", tmp_path / "v.bin"
    for path in (text, binary):
        path.write_bytes(f"2 {width}\nfilm 1 2\nthe 1 2\n".encode())
    lines = list(vector_lines(text, {"film"}))
    assert len(lines) in (2, 3)
    for read in (lambda: list(vector_lines(binary, {"film"})), lambda: check_vectors(binary)):
        with pytest.raises(DataError, match="width|has 9+ numbers"):
            read()


def test_a_column_whose_name_is_no_text(tmp_path: Path) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), sink, store_schema=False)
    path = tmp_path / "t.parquet"
    path.write_bytes(sink.getvalue().replace(b"label", b"la\xe2el"))
    for read in (column_names, column_types, lambda path: list(read_records(path))):
        with pytest.raises(DataError, match="no readable Parquet file"):
            read(path)
