"""Scores from a file go to the words of the right examples; what cannot be used is told by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rss_rl.data.prepare import prepare
from rss_rl.data.score_file import read_scores
from rss_rl.data.sources import RawExample, Source
from rss_rl.data.store import Split, open_prepared
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec


def texts(sentences: int) -> Source:
    """Two examples a split, of one text or of two."""

    def read(split: str) -> Iterator[RawExample]:
        for row, texts in enumerate(((("a", "b", "c"), ("d",)), (("e",), ("f", "g")))):
            yield RawExample(f"{split}-{row}", texts[:sentences], ("no", "yes")[row])

    files: dict[str, tuple[Path, ...]] = {"train": (), "test": ()}
    return Source("texts", sentences, LabelSpec("classes", ("no", "yes")), files, read)


@pytest.fixture(scope="module", params=[1, 2], ids=["texts", "pairs"])
def split(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Split:
    out = tmp_path_factory.mktemp("texts") / "out"
    prepare(texts(request.param), out, dim=3)
    return open_prepared(out).split("test")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Split:
    out = tmp_path_factory.mktemp("single") / "out"
    prepare(texts(1), out, dim=3)
    return open_prepared(out).split("test")


def write(path: Path, *lines: Any) -> Path:
    text = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("\n".join(text))
    return path


def test_scores_by_id(split: Split, tmp_path: Path) -> None:
    given = {"test-0": [[0.5, -1, 2], [True]], "test-1": [[7], [1e-3, 0]]}
    for scores in given.values():
        del scores[split.sentences :]
    # In any order, beside those of other splits.
    lines = [{"id": known, "scores": scores} for known, scores in reversed(given.items())]
    found = read_scores(write(tmp_path / "x", *lines, "", {"id": "train-0", "scores": []}), split)
    assert [[part.tolist() for part in row] for row in found] == list(given.values())
    if split.sentences == 1:
        flat = [line | {"scores": line["scores"][0]} for line in lines]  # type: ignore[index]
        again = read_scores(write(tmp_path / "x", *flat), split)
        assert [[part.tolist() for part in row] for row in again] == list(given.values())


GOOD = {"id": "test-0", "scores": [1, 2, 3]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: malformed row: no JSON"),
        ([1], "line 2: malformed row: no JSON object"),
        ({"scores": [1]}, "line 2: has no 'id'"),
        (GOOD, "line 2: 'test-0' has scores in line 1 already"),
        ({"id": "test-1"}, "line 2: 'scores' of 'test-1' are not a list"),
        ({"id": "test-1", "scores": []}, "line 2: 0 scores for the 1 words of 'test-1'"),
        ({"id": "test-1", "scores": [1, 2]}, "line 2: 2 scores for the 1 words of 'test-1'"),
        ({"id": "test-1", "scores": [[1], [2]]}, "line 2: 1, 1 scores for the 1 words"),
        ({"id": "test-1", "scores": ["1"]}, "Input should be a valid number"),
        ('{"id": "test-1", "scores": [NaN]}', "Input should be a finite number"),
        ({"id": "test-1", "scores": [10**400]}, "are not a list of finite numbers"),
        ("", "has no scores of 'test-1' of the test split. Write a line"),
        ({"id": "test-2", "scores": []}, "split; line 2 has 'test-2', which is not of this split"),
    ],
)
def test_what_cannot_be_used(single: Split, tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_scores(write(tmp_path / "scores.jsonl", GOOD, line), single)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "scores.jsonl"))
