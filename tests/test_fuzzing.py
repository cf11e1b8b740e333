"""A short campaign of damaged input, and what longer ones found."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz_targets import KINDS, Target, damaged_bytes
from fuzzing import Outcome, campaign, load, save

from rss_rl.data.records import column_names, column_types, read_records
from rss_rl.data.vector_files import check_vectors, vector_lines
from rss_rl.errors import DataError


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "calls"), [("memory", 60_000), ("files", 2_000), ("folders", 900)]
)
def test_damaged_input_is_read_or_refused(kind: str, calls: int) -> None:
    outcomes = campaign(kind, calls, 400.0, seed=1)
    for name, outcome in outcomes.items():
        serious = {key: found for key, found in outcome.findings.items() if key != "slow"}
        assert not serious, (name, serious)
        assert outcome.read + outcome.refused == outcome.calls
        assert outcome.refused or name == "status", name  # which shows whatever is there


@pytest.mark.parametrize("kind", KINDS)
def test_every_target_reads_its_sound_inputs(kind: str, tmp_path: Path) -> None:
    """Else nothing would be told by what it refuses."""
    for name, target in KINDS[kind]().items():
        for sound in target.sound:
            (folder := tmp_path / name).mkdir(exist_ok=True)
            target.read(sound, folder)


def read_planted(content: bytes, folder: Path) -> int:
    """Refuses what does not begin as it should; with a bug that few inputs reach."""
    text = content.decode("latin-1")
    if not text.startswith("#"):
        raise DataError("no sign")
    if "<<" in text:
        json.loads(text)
    return len(text)


def test_a_campaign_finds_counts_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target([b"# sound"], read_planted, damaged_bytes)
    monkeypatch.setitem(KINDS, "memory", lambda: {"planted": target})
    whole = campaign("memory", 800, 60.0, seed=3)["planted"]
    assert whole.calls == 800
    assert whole.read > 300
    assert whole.refused > 50
    assert 3 < len(whole.kept) <= len(whole.met)
    (kind, found), *more = whole.findings.items()
    assert kind.startswith("JSONDecodeError at ")
    assert not more
    assert found["count"] == 800 - whole.read - whole.refused
    assert "<<" in found["input"]
    begun = campaign("memory", 300, 60.0, seed=3)
    file = tmp_path / "state.json"
    save(file, {"memory": begun})
    assert begun["planted"].calls == 300
    resumed = campaign("memory", 800, 60.0, 3, (), load(file)["memory"])["planted"]
    assert replace(resumed, slowest_s=0) == replace(whole, slowest_s=0)


def test_what_is_reported_of_a_damaged_directory() -> None:
    outcome = Outcome()
    outcome.find("kind", "said", {"a": b"1", "b": None}, {"a": b"1", "b": b"2", "c": b"3"})
    assert outcome.findings["kind"]["input"] == "{'b': None, 'c': 'gone'}"


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
        with pytest.raises(DataError, match="not a readable Parquet file"):
            read(path)
