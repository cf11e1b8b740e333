"""`rss-rl predict`: all formats tell the same, bad rows are named, and no half file is left."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from readers import REVIEWS as TEXTS
from readers import TASKS, reader

import rss_rl
from rss_rl.errors import DataError, StorageError
from rss_rl.inference.explanation import Explanation
from rss_rl.inference.model import Model
from rss_rl.inference.predict import Counts, own_columns, score_file
from rss_rl.reading.device import fixed_threads


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return rss_rl.load(run)


def texts_file(path: Path, texts: tuple[str, ...] = TEXTS) -> Path:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([["id", "review"], *([n, t] for n, t in enumerate(texts))])
    return path


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of an output, lists and probabilities as Python has them."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist(maps_as_pydicts="strict")
        return rows
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    plain = ("error", "prediction", "words_kept", "id", "review")
    with path.open(newline="") as stream:
        return [
            {k: (v or None) if k in plain else json.loads(v or "null") for k, v in row.items()}
            for row in csv.DictReader(stream)
        ]


@pytest.mark.parametrize(
    ("ending", "share"), [("parquet", None), ("csv", None), ("jsonl", None), ("csv", 0.4)]
)
def test_every_format_tells_what_the_model_says(
    ending: str, share: float | None, model: Model, tmp_path: Path
) -> None:
    target = tmp_path / f"out.{ending}"
    counts = score_file(model, texts_file(tmp_path / "in.csv"), target, ("review",), share=share)
    assert counts == Counts(3, 0)
    rows = read(target)
    if share is not None:
        assert [row["kept"] for row in rows] != [own.kept for own in model.predict(TEXTS)]
    for row, expected in zip(rows, model.predict(TEXTS, share=share), strict=True):
        (sentence,) = expected.sentences
        assert row["prediction"] == expected.prediction
        assert expected.class_probabilities is not None
        for name, share in expected.class_probabilities.items():
            assert row[f"p_{name}"] == pytest.approx(share, abs=1e-6)
        kept = [word for word, kept in zip(sentence.words, sentence.kept, strict=True) if kept]
        assert row["words_kept"] == " ".join(kept)
        assert row["kept"] == pytest.approx(len(kept) / len(sentence.words))
        assert "error" not in row
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", target.name]


def test_nothing_is_predicted_below_a_probability(model: Model, tmp_path: Path) -> None:
    source, target = texts_file(tmp_path / "in.csv"), tmp_path / "out.parquet"
    surest = [max((own.class_probabilities or {}).values()) for own in model.predict(TEXTS)]
    least = sorted(surest)[1]
    score_file(model, source, target, ("review",), abstain_below=least)
    rows = read(target)
    assert [row["prediction"] is None for row in rows] == [share < least for share in surest]
    assert any(row["prediction"] is None for row in rows)
    assert all(row["p_no"] + row["p_yes"] == pytest.approx(1) for row in rows)


def test_texts_of_all_lengths_are_told_as_alone_and_in_their_order() -> None:
    model = reader("classes", seed=3)
    texts = [" ".join(f"w{n % 26 + 2}" for n in range(k % 41 + 1)) for k in range(0, 2100, 7)]
    for text, found in zip(texts, model.predict(texts), strict=True):
        (alone,) = model.predict([text])
        assert found.prediction == alone.prediction
        assert repr(found.sentences) == repr(alone.sentences)
        assert found.class_probabilities == pytest.approx(alone.class_probabilities, abs=1e-5)


def test_a_table_has_a_row_for_each_text_whatever_it_is(model: Model) -> None:
    frame = model.predict(["warm film", " ", "dull"], as_frame=True)
    first, none, _ = frame.to_dict("records")
    assert none["error"] == "a text has no words"
    assert frame["error"].isna().tolist() == [True, False, True]
    assert first["prediction"] == model.predict(["warm film"])[0].prediction
    assert set(own_columns(model.labels, 1, errors=True)) == {*frame.columns}
    assert np.isnan(none["kept"])


def test_the_columns_of_the_training_table_are_known(run: Path, tmp_path: Path) -> None:
    model, source = rss_rl.load(run), texts_file(tmp_path / "in.csv")
    known = {"columns": ("review", "stars")}
    model.inputs.manifest = model.inputs.manifest.model_copy(update=known)
    assert score_file(model, source, tmp_path / "out.csv") == Counts(3, 0)


def test_a_text_takes_one_thread_and_much_work_all(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = reader("classes"), []
    policy = cast(torch.nn.Module, model.models.policy)
    policy.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    with fixed_threads(2):
        model.predict(["w3 w4"])
        assert torch.get_num_threads() == 2
        monkeypatch.setattr("rss_rl.inference.model._ONE_THREAD", 0)
        model.predict(["w3 w4"])
    assert seen == [1, 2]


def test_a_bad_row_ends_it_by_name_and_leaves_what_was_there(model: Model, tmp_path: Path) -> None:
    source = texts_file(tmp_path / "in.csv", ("warm", " ", "dull"))
    target = tmp_path / "out.csv"
    target.write_text("before")
    with pytest.raises(DataError, match=r"in\.csv, row 3: column 'review' holds no text"):
        score_file(model, source, target, ("review",))
    assert target.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 2
    assert score_file(model, source, target, ("review",), skip_bad_rows=True) == Counts(3, 1)
    rows = read(target)
    assert [row["error"] for row in rows] == [None, "column 'review' holds no text", None]
    assert [row["prediction"] is None for row in rows] == [False, True, False]
    assert rows[1]["words_kept"] is None


@pytest.mark.parametrize("skip", [False, True])
def test_errors_are_counted_whatever_the_input_calls_its_columns(
    skip: bool, model: Model, tmp_path: Path
) -> None:
    source = tmp_path / "in.csv"
    source.write_text(f"text,error,prediction\nwarm,E1,\n{' ' if skip else 'dull'},,x\nw3,E3,x\n")
    counts = score_file(model, source, tmp_path / "out.jsonl", ("text",), skip_bad_rows=skip)
    assert counts == Counts(3, int(skip))


def test_a_text_of_which_no_word_is_known_is_said(model: Model, tmp_path: Path) -> None:
    """Neither by its punctuation, nor by the other text of a pair."""
    (known,) = model.inputs.vocabulary.words[-1:]
    texts = (f"{known} qqq", f"{known} {known}", "\u5f71\u7247 \u597d .")
    target = tmp_path / "out.jsonl"
    score_file(model, texts_file(tmp_path / "in.csv", texts), target, ("review",))
    assert [row["known"] for row in read(target)] == [0.5, 1, 0]
    found = model.predict(texts)
    assert [bool(one.note) for one in found] == [False, False, True]
    pair = Explanation((*found[1].sentences, *found[2].sentences), None, None)
    assert "no word of the text is known" in str(pair.to_dict()["note"])


@pytest.mark.parametrize(
    ("limit", "unit"), [("MOST_CHARACTERS", "characters"), ("MOST_WORDS", "words")]
)
def test_a_text_longer_than_any_is_a_bad_row(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, unit: str
) -> None:
    monkeypatch.setattr(f"rss_rl.data.checks.{limit}", 50)
    source = texts_file(tmp_path / "in.csv", ("A day.", "good " * 51, "Another day."))
    with pytest.raises(DataError, match=rf"in\.csv, row 3: .*{unit}.*Cut it into parts"):
        score_file(model, source, tmp_path / "out.jsonl", ("review",))
    counts = score_file(model, source, tmp_path / "out.jsonl", ("review",), skip_bad_rows=True)
    assert counts == Counts(3, 1)
    with pytest.raises(DataError, match=f"example 1: .*{unit}"):
        model.predict(["good " * 51])


@pytest.mark.parametrize("place", ["file/out.csv", "n" * 250 + ".csv", "folder.csv"])
def test_an_output_that_cannot_be_written_is_one_line(
    place: str, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.csv").mkdir()
    source = texts_file(tmp_path / "in.csv")
    with pytest.raises(StorageError, match=r"cannot be written: .*another --output"):
        score_file(model, source, tmp_path / place, ("review",))


ROWS: list[dict[str, Any]] = [
    {"id": 7, "review": "warm", "prediction": "mine", "tags": ["a", "b"]},
    {"id": 8, "review": " ", "prediction": None, "tags": []},
    {"id": None, "review": "dull", "prediction": "x", "tags": ["\N{SNOWMAN}"]},
]


@pytest.mark.parametrize(
    ("given", "ending"),
    [("parquet", "parquet"), ("parquet", "csv"), ("csv", "tsv"), ("jsonl", "jsonl")],
)
def test_the_columns_of_the_input_stand_beside_the_prediction(
    given: str, ending: str, model: Model, tmp_path: Path
) -> None:
    source, target = tmp_path / f"in.{given}", tmp_path / f"out.{ending}"
    if given == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), source)
    elif given == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS, {"review": "a"}]))
    else:
        with source.open("w", newline="") as stream:
            table = csv.writer(stream)
            table.writerows([list(ROWS[0]), *(list(row.values()) for row in ROWS)])
    score_file(model, source, target, ("review",), skip_bad_rows=True)
    rows = raw(target)
    own = own_columns(model.labels, 1, errors=True)
    assert list(rows[0]) == [*own, "id", "review", "input_prediction", "tags"]
    assert [row["review"] for row in rows[:3]] == ["warm", " ", "dull"]
    assert [row["input_prediction"] or None for row in rows[:3]] == ["mine", None, "x"]
    typed = ending == "jsonl" if given == "jsonl" else ending in ("parquet", "jsonl")
    if given != "csv" and typed:
        assert [row["id"] for row in rows[:3]] == [7, 8, None]
        assert [row["tags"] for row in rows[:3]] == [["a", "b"], [], ["\N{SNOWMAN}"]]
    else:
        assert [row["id"] or "" for row in rows[:3]] == ["7", "8", ""]
        marks = "'" if given == "csv" else '"'
        assert rows[0]["tags"] == f"[{marks}a{marks}, {marks}b{marks}]"
    assert all(row["id"] in (None, "") for row in rows[3:])


def raw(path: Path) -> list[dict[str, Any]]:
    """The rows as the file has them."""
    if path.suffix in (".csv", ".tsv"):
        with path.open(newline="") as stream:
            return list(csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ","))
    return read(path)


def test_pairs_and_scores(tmp_path: Path) -> None:
    for task in ("pair", "score"):
        source, target = tmp_path / f"{task}.jsonl", tmp_path / f"{task}.parquet"
        first, second = TASKS[task][2]
        source.write_text(json.dumps({"a": first, "b": second}) + "\n")
        model = reader(task)
        score_file(model, source, target, ("a", "b"))
        (row,) = read(target)
        (expected,) = model.predict([(first, second)])
        assert row["prediction"] == expected.prediction
        kept = [word for sentence in expected.sentences for word in sentence.words]
        assert {*row["words_kept"].split(), *row["words_kept_b"].split()} <= set(kept)
        assert any(name.startswith("p_") for name in row) == (task == "pair")


def test_columns_must_be_named_where_there_are_others(model: Model, tmp_path: Path) -> None:
    source = texts_file(tmp_path / "in.csv")
    with pytest.raises(DataError, match=r"2 column\(s\).*--text; the file's are: id, review"):
        score_file(model, source, tmp_path / "out.csv")
    with pytest.raises(DataError, match="no column 'reviews'; did you mean 'review'"):
        score_file(model, source, tmp_path / "out.csv", ("reviews",))
    with pytest.raises(DataError, match="not compressed"):
        score_file(model, source, tmp_path / "out.csv.gz", ("review",))
