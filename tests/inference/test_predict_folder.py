"""`rss-rl predict` as typed, of files and folders: continued, and never another's files."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from invoking import invoke
from scored import outputs, texts_folder, write_texts

from rss_rl.inference.artifact import export_run
from rss_rl.inference.model import Model, load_model
from rss_rl.inference.predict import score_file

ROWS = {"b.parquet": 300, "a.parquet": 5, "year=2026/c.parquet": 40}


def typed(run: Path, source: object, target: object, *more: object, code: int = 0) -> str:
    """The output of `rss-rl predict` that ends with `code`, as one line."""
    given = ["predict", run, "--input", source, "--output", target, "--text", "review", *more]
    done = invoke(given)
    assert done.exit_code == code, (done.output, done.exception)
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = texts_folder(tmp_path_factory.mktemp("texts") / "in", ROWS)
    (made / "_temporary").mkdir()
    for name in ("_temporary/d.parquet", ".e.parquet", "notes.txt"):
        (made / name).write_text("no table")
    return made


@pytest.fixture(scope="module")
def scored(run: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("scored") / "out"
    assert f"wrote {target}: 3 files, 345 rows" in typed(run, source, target)
    return target


def test_each_file_is_scored_as_by_itself(
    run: Path, source: Path, scored: Path, tmp_path: Path
) -> None:
    assert set(outputs(scored)) == set(ROWS)
    model = load_model(run)
    for name in ROWS:
        score_file(model, source / name, tmp_path / "one.parquet", ("review",))
        table = pq.ParquetFile(scored / name).read()
        assert table.equals(pq.read_table(tmp_path / "one.parquet"))
    typed(export_run(run, tmp_path / "model"), source, tmp_path / "out")
    assert outputs(tmp_path / "out") == outputs(scored)


@pytest.mark.parametrize("place", ["memory://{}/in", "file://{}/in"])
def test_uris(run: Path, source: Path, scored: Path, place: str, tmp_path: Path) -> None:
    place = place.format(tmp_path)
    for name in ROWS:
        with fsspec.open(f"{place}/{name}", "wb", auto_mkdir=True) as stream:
            stream.write((source / name).read_bytes())
    target = place.removesuffix("in") + "out"
    typed(run, place, target)
    for name in ROWS:
        with fsspec.open(f"{target}/{name}", "rb") as stream:
            assert stream.read() == (scored / name).read_bytes()
    assert "3 were complete already" in typed(run, place, target)
    assert "1 file, 5 rows" in typed(run, f"{place}/a.parquet", tmp_path / "one.jsonl")


def test_what_is_complete_is_not_scored_again(
    run: Path, source: Path, scored: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    for name, content in outputs(scored).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
    (target / "a.parquet").unlink()
    said = typed(run, source, target)
    assert "wrote" in said
    assert "2 were complete already" in said
    assert outputs(target) == outputs(scored)


@pytest.mark.parametrize("other", ["model", "columns", "share", "sure", "input", "cut", "empty"])
def test_other_outputs_are_not_mixed_with_these(other: str, run: Path, tmp_path: Path) -> None:
    source, target = texts_folder(tmp_path / "in", {"a.parquet": 5}), tmp_path / "out"
    typed(run, source, target)
    more: list[object] = []
    if other == "model":
        more = ["--which", 7]
    elif other == "columns":
        more = ["--skip-bad-rows"]
    elif other == "share":
        more = ["--share", 0.5]
    elif other == "sure":
        more = ["--abstain-below", 0.8]
        assert "no probability" in typed(run, source, target, "--abstain-below", 80, code=2)
    elif other == "input":
        write_texts(source / "a.parquet", ["a", "b", "c", "d", "e"])
    else:
        whole = (target / "a.parquet").read_bytes()
        (target / "a.parquet").write_bytes(whole[:-9] if other == "cut" else b"")
    before = outputs(target)
    said = typed(run, source, target, *more, code=2)
    what = "no complete Parquet file" if other in ("cut", "empty") else "of another model, input"
    assert f"{target}/a.parquet: exists, and is {what}" in said
    assert "--overwrite" in said
    assert outputs(target) == before
    typed(run, source, target, *more, "--overwrite")
    assert "1 were complete already" in typed(run, source, target, *more)


@pytest.mark.parametrize("way", ["itself", "below", "above", "link", "file://"])
def test_the_input_folder_is_never_written_to(way: str, run: Path, tmp_path: Path) -> None:
    source = texts_folder(tmp_path / "above" / "in", {"a.parquet": 3})
    (tmp_path / "link").symlink_to(source)
    target = {"below": source / "out", "above": source.parent, "link": tmp_path / "link"}
    place = f"file://{source}" if way == "file://" else str(target.get(way, source))
    before = outputs(tmp_path)
    said = typed(run, source, place, "--overwrite", code=2)
    assert "overlaps the input" in said or "is the input" in said
    assert outputs(tmp_path) == before


@pytest.mark.parametrize("way", ["itself", "spelling", "symbolic link", "hard link"])
def test_the_input_file_is_never_replaced(way: str, run: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    write_texts(source, ["warm"])
    before = source.read_bytes()
    (tmp_path / "folder").mkdir()
    if way == "itself":
        target = source
    elif way == "spelling":
        target = tmp_path / "folder" / ".." / "in.parquet"
    elif way == "symbolic link":
        target.symlink_to(source)
    else:
        target.hardlink_to(source)
    assert "is the input" in typed(run, source, target, "--overwrite", code=2)
    assert source.read_bytes() == before


def test_a_signal_leaves_the_file_in_work_out(
    run: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(model: Model, *given: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return read(model, *given, **more)

    read = Model.read
    monkeypatch.setattr(Model, "read", told)
    said = typed(run, source, tmp_path / "out", code=143)
    assert f"0 of 3 files were written to {tmp_path / 'out'}; the same command continues" in said
    assert outputs(tmp_path / "out") == {}
