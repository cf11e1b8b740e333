"""Cloze sources: candidates in the order of the passage, and answers that are not in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rss_rl.cli.data import example_line
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, SourceRequest, named_source
from rss_rl.data.store import open_prepared


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def rows_of(name: str, folder: Path, split: str, seed: int = 0, **options: str) -> list[Any]:
    return list(named_source(name, SourceRequest(folder, seed, options)).read(split))


@pytest.fixture
def lambada(tmp_path: Path) -> Path:
    folder = tmp_path / "lambada"
    folder.mkdir()
    line = "Ann met bob . `` hi , '' said ann . 3 : she liked Bob\n"
    (folder / "lambada_development_plain_text.txt").write_text(line * 50)
    lines = [line, "one two three . he saw four\n", "a b . c 's 's\n", "a : . b :\n", "only\n"]
    (folder / "lambada_test_plain_text.txt").write_text("".join(lines) + "\n")
    return folder


def test_lambada(lambada: Path) -> None:
    first, *dropped = rows_of("lambada", lambada, "test")
    assert first.texts == (
        words("Ann met bob . `` hi , '' said ann ."),
        words("3 : she liked @placeholder"),
    )
    assert first.marks == (0, 1, 2, -1, -1, 3, -1, -1, 4, 0, -1)
    assert first.label == 2
    assert all(isinstance(row, BadRow) and row.by_convention for row in dropped)
    assert [row.row for row in dropped] == [2, 3, 4, 5]


def test_lambada_is_cut_and_shown(lambada: Path, tmp_path: Path) -> None:
    parts = [{row.row for row in rows_of("lambada", lambada, s)} for s in ("train", "dev")]
    assert [len(part) for part in parts] == [40, 10]
    assert not parts[0] & parts[1]
    assert {row.row for row in rows_of("lambada", lambada, "dev", seed=1)} != parts[1]
    prepare(named_source("lambada", SourceRequest(lambada)), tmp_path / "out", dim=2)
    prepared = open_prepared(tmp_path / "out")
    assert (prepared.labels.kind, prepared.manifest.splits["test"].dropped_rows) == ("candidate", 4)
    shown = example_line(prepared.split("test"), 0)
    assert shown.startswith("lambada_test_plain_text-1  bob: Ann met bob .")
    assert prepared.labels.described == "a candidate of the passage"


STORY = "@entity7 met @entity3 in @entity9 , said @entity3 's friend ."
QUESTION = "a friend of @placeholder saw @entity7 and @entity12"


def question_file(answer: str = "@entity3", story: str = STORY, question: str = QUESTION) -> str:
    names = "\n".join(f"@entity{n}:Name {n}" for n in (3, 7, 9, 12, 30))
    return f"http://x\n\n{story}\n\n{question}\n\n{answer}\n\n{names}\n"


@pytest.fixture
def cnn(tmp_path: Path) -> Path:
    folder = tmp_path / "cnn"
    for part in ("training", "validation", "test"):
        (folder / "questions" / part).mkdir(parents=True)
        (folder / "questions" / part / "a1.question").write_text(question_file())
    return folder


def test_cnn_entities_are_renumbered(cnn: Path, tmp_path: Path) -> None:
    path = cnn / "questions" / "test"
    (path / "a0.question").write_text(question_file("@entity30"))
    (path / "notes.txt").write_text("nothing")
    dropped, row = rows_of("cnn-dailymail", cnn, "test")
    assert (dropped.by_convention, dropped.file) == (True, str(path / "a0.question"))
    assert row.texts[0] == words("@entity0 met @entity1 in @entity2 , said @entity1 's friend .")
    assert row.texts[1] == words("a friend of @placeholder saw @entity0 and @entity3")
    assert (row.label, row.marks) == (1, (0, -1, 1, -1, 2, -1, -1, 1, -1, -1, -1))
    sums = []
    for _ in range(2):
        source = named_source("cnn-dailymail", SourceRequest(cnn))
        manifest = prepare(source, tmp_path / "out", dim=2, force=True)
        sums.append({file.name: file.sha256 for file in manifest.sources})
        (cnn / "questions" / "training" / "a2.question").write_text(question_file("@entity9"))
    assert sums[0].keys() == {"training", "validation", "test"}
    assert sums[0]["training"] != sums[1]["training"]
    assert sums[0]["test"] == sums[1]["test"]
    assert open_prepared(tmp_path / "out").split("train").batch([0, 1]).labels.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "row", "reason"),
    [
        (b"http://x\n\n@entity1 sings\n", 1, "malformed: 2 of 5 parts"),
        (question_file(question="no blank").encode(), 5, "the question has no @placeholder"),
        (question_file("Name 3").encode(), 7, "the answer is not an entity"),
        (question_file(story="caf\xe9").encode("latin-1"), 1, "cannot be read"),
    ],
)
def test_bad_question_files(cnn: Path, content: bytes, row: int, reason: str) -> None:
    path = cnn / "questions" / "test" / "a1.question"
    path.write_bytes(content)
    (bad,) = rows_of("cnn-dailymail", cnn, "test")
    assert (bad.file, bad.row, bad.by_convention) == (str(path), row, False)
    assert reason in bad.reason
