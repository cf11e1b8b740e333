"""`rss-rl predict` of a folder: as file by file, resumable, and never another's files."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
import torch
from scored import outputs, texts_folder, write_texts
from typer.testing import CliRunner

from rss_rl.cli.main import app
from rss_rl.components import NOTHING
from rss_rl.errors import StorageError
from rss_rl.inference import predict_folder as folder_module
from rss_rl.inference.artifact import PackedModel, export_run, pack_model
from rss_rl.inference.model import Model, load_model
from rss_rl.inference.predict_file import Counts, score_file
from rss_rl.inference.predict_folder import FileScorer, FolderJob, begin_folder, score_here

ROWS = {"b.parquet": 300, "a.parquet": 5, "year=2026/c.parquet": 40}


def typed(run: Path, source: object, target: object, *more: object, code: int = 0) -> str:
    """The output of `rss-rl predict` that ends with `code`, as one line."""
    given = ["predict", run, "--input", source, "--output", target, "--text", "review", *more]
    done = CliRunner().invoke(app, list(map(str, given)))
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
def packed(run: Path) -> PackedModel:
    return pack_model(run)


@pytest.fixture(scope="module")
def scored(run: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("scored") / "out"
    assert f"wrote {target}: 3 files, 345 rows" in typed(run, source, target)
    return target


def begin(packed: PackedModel, source: Path, target: Path) -> FolderJob:
    options = {"skip_bad_rows": False, "overwrite": False}
    return begin_folder(packed, str(source), str(target), ("review",), NOTHING, **options)


def test_each_file_is_scored_as_by_itself(
    run: Path, source: Path, scored: Path, tmp_path: Path
) -> None:
    assert set(outputs(scored)) == {*ROWS, "_predict.json"}
    model = load_model(run)
    for name, rows in ROWS.items():
        score_file(model, source / name, tmp_path / "one.parquet", ("review",), overwrite=True)
        table = pq.ParquetFile(scored / name).read()
        assert table.column("file").to_pylist() == [name] * rows
        assert table.drop_columns("file").equals(pq.read_table(tmp_path / "one.parquet"))


def test_a_run_and_its_export_are_one_model(
    run: Path, source: Path, scored: Path, tmp_path: Path
) -> None:
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
    assert "1 files, 5 rows" in typed(run, f"{place}/a.parquet", f"{target}-of-one")


def test_what_is_complete_is_not_scored_again(run: Path, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    typed(run, source, target)
    whole = outputs(target)
    (target / "a.parquet").unlink()
    (target / "b.parquet").write_bytes(b"looks complete")
    (target / ".tmp-a.parquet-7").write_bytes(b"half")
    said = typed(run, source, target)
    assert "2 of 3 files are complete already" in said
    assert "1 files, 5 rows; 2 were complete already" in said
    assert outputs(target) == whole | {"b.parquet": b"looks complete"}
    typed(run, source, target, "--overwrite")
    assert outputs(target) == whole


@pytest.mark.parametrize("other", ["model", "columns", "input, files"])
def test_another_call_is_refused(
    other: str, run: Path, source: Path, scored: Path, tmp_path: Path
) -> None:
    before = outputs(scored)
    more: list[object] = []
    if other == "model":
        more = ["--which", 0]
        other = "model, step"
    elif other == "columns":
        more = ["--text-b", "id"]
    else:
        source = texts_folder(tmp_path / "in", {"a.parquet": 5, "new.parquet": 3})
    said = typed(run, source, scored, *more, code=2)
    assert f"was begun with a different {other}" in said
    assert "--overwrite" in said
    assert outputs(scored) == before


def test_files_of_others_stay(run: Path, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_texts(target / "a.parquet", ["mine"])
    before = outputs(target)
    for more in ([], ["--overwrite"]):
        assert "Give an empty folder" in typed(run, source, target, *more, code=2)
    assert outputs(target) == before
    (target / "_predict.json").write_text("{}")
    assert "cannot be read" in typed(run, source, target, "--overwrite", code=2)


@pytest.mark.parametrize("way", ["itself", "below", "above", "link", "file://"])
def test_the_input_is_never_written_to(way: str, run: Path, tmp_path: Path) -> None:
    source = texts_folder(tmp_path / "above" / "in", {"a.parquet": 3})
    (tmp_path / "link").symlink_to(source)
    target = {"below": source / "out", "above": source.parent, "link": tmp_path / "link"}
    place = f"file://{source}" if way == "file://" else str(target.get(way, source))
    before = outputs(tmp_path)
    assert "overlaps the input" in typed(run, source, place, code=2)
    assert outputs(tmp_path) == before


def test_a_bad_row_is_named_and_what_is_done_is_kept(run: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    write_texts(source / "bad.parquet", ["warm", " ", "dull"])
    write_texts(source / "good.parquet", ["warm film"] * 99)
    said = typed(run, source, target, code=2)
    assert f"{source}/bad.parquet, row 2: column 'review' holds no text" in said
    assert f"1 of 2 files are complete in {target}; continue with: rss-rl" in said
    assert set(outputs(target)) == {"good.parquet", "_predict.json"}
    said = typed(run, source, target, "--skip-bad-rows")
    assert "1 files, 3 rows, 1 of them with an error; 1 were complete already" in said
    assert "no column 'reviews'" in typed(
        run, source, tmp_path / "new", "--text", "reviews", code=2
    )
    assert "holds no Parquet files" in typed(run, target / "none", tmp_path / "c", code=2)


def test_a_stop_leaves_the_file_in_work_out(
    packed: PackedModel, source: Path, tmp_path: Path
) -> None:
    job = begin(packed, source, tmp_path / "out")
    said: list[Counts] = []
    assert list(score_here(packed, job, lambda: bool(said), said.append)) == []
    assert said == [Counts(256, 0)]
    assert set(outputs(tmp_path / "out")) == {"_predict.json"}
    assert json.loads(job.record)["files"] == job.files


@pytest.mark.parametrize("address", [None, "local"])
def test_a_signal_ends_it_and_what_to_do_is_said(
    address: str | None, run: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray Data's waiting is broken off; where rows are read here, reading stops by itself."""

    def scoring(*given: Any, **more: Any) -> Iterator[Counts]:
        yield Counts(5, 0)
        os.kill(os.getpid(), signal.SIGTERM)
        while address is not None or not given[2]():
            time.sleep(0.01)

    monkeypatch.setattr(folder_module, "score_here", scoring)
    monkeypatch.setattr("rss_rl.cluster.predict_folder.score_on_ray", scoring)
    target = tmp_path / "out"
    monkeypatch.setattr("sys.argv", ["rss-rl", "predict", "a b", "--overwrite"])
    said = typed(run, source, target, *(["--address", address] if address else []), code=143)
    assert f"0 of 3 files are complete in {target}; continue with: rss-rl predict 'a b'" in said
    assert "--overwrite" not in said


@pytest.mark.parametrize(("new", "loaded"), [({}, 1), ({"unseen": 99}, 3)])
def test_no_file_sees_the_new_words_of_another(
    new: dict[str, int],
    loaded: int,
    packed: PackedModel,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models: list[Model] = []

    def load(*given: Any, **more: Any) -> Model:
        models.append(load_model(*given, **more))
        models[-1]._new_words.update(new)
        return models[-1]

    monkeypatch.setattr(folder_module, "load_model", load)
    job = begin(packed, source, tmp_path / "out")
    assert sum(score_here(packed, job, lambda: False, lambda _: None), Counts(0, 0)).rows == 345
    assert len(models) == loaded


def test_one_thread_computes_whatever_the_machine_has(
    packed: PackedModel, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two give other last bits where a layer is wide."""
    seen: list[int] = []
    monkeypatch.setattr(
        Model,
        "read",
        lambda model, cut, read=Model.read: (
            seen.append(torch.get_num_threads()) or read(model, cut)
        ),
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        FileScorer(begin(packed, source, tmp_path / "out"), packed).score("a.parquet")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_ray_data_is_asked_for_by_name(
    run: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rss_rl.cluster.predict_folder.find_spec", lambda name: None)
    said = typed(run, source, tmp_path / "out", "--address", "local", code=2)
    assert "Install rss-rl[data]" in said
    assert not (tmp_path / "out").exists()


def test_a_machine_that_does_not_see_the_output_is_refused(
    packed: PackedModel, source: Path, tmp_path: Path
) -> None:
    job = begin(packed, source, tmp_path / "out")
    elsewhere = replace(job, target=begin(packed, source / "a.parquet", tmp_path / "b").target)
    with pytest.raises(StorageError, match="this machine has another folder.*URIs"):
        FileScorer(elsewhere, packed).score("a.parquet")
