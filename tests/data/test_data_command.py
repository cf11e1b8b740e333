"""`rss-rl data` as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from invoking import Result, invoke

from rss_rl.data.manifest import Manifest
from rss_rl.data.store import open_prepared
from rss_rl.errors import DataError, RssError

OWN = ["FILE", "--text", "review", "--label", "stars"]
SCORES = ["--task", "score"]


def run(*arguments: object) -> Result:
    result = invoke(["data", *arguments])
    if isinstance(result.exception, RssError):
        raise result.exception
    return result


@pytest.fixture
def reviews_csv(tmp_path: Path, reviews: list[dict[str, object]]) -> Path:
    path = tmp_path / "reviews.csv"
    lines = [f"{row['review']!r},{row['stars']}".replace("'", '"') for row in reviews]
    path.write_text("review,stars\n" + "\n".join(lines) + "\n")
    return path


def test_labels_that_look_like_several_are_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    labels = ["red", "blue", "red;blue"] * 20
    rows = (f"text {number},{label}" for number, label in enumerate(labels))
    path.write_text("\n".join(["review,stars", *rows]) + "\n")
    arguments = (
        path,
        "--text",
        "review",
        "--label",
        "stars",
        "--dim",
        2,
        "--out",
        tmp_path / "out",
    )
    assert "'red;blue' is a class of its own" in run("prepare", *arguments).output


def test_prepare_a_known_dataset(tmp_path: Path, sick_folder: Path) -> None:
    vectors = tmp_path / "glove.txt"
    vectors.write_text("dog 1 2\nboat 3 4\n")
    out = tmp_path / "out"
    arguments = ("sick-relatedness", "--from", sick_folder, "--vectors", vectors, "--out", out)
    said = run("prepare", *arguments, "--vectors", vectors).output
    assert f"Written to {out} in " in said
    assert "4 dimensions" in said
    text = run("show", out, "--examples", 2).output
    assert {*said.splitlines()[:-1]} <= {*text.splitlines()}
    assert "a score from 1 to 5" in text
    assert "glove.txt (2): has " in text
    assert "A dog is n't barking | The" in text


def test_prepare_own_file(tmp_path: Path, reviews_csv: Path) -> None:
    out = tmp_path / "out"
    arguments = ("prepare", reviews_csv, "--text", "review", "--label", "stars", "--out", out)

    def prepared(*more: object) -> Manifest:
        result = run(*arguments, *more)
        assert result.exit_code == 0
        return open_prepared(out).manifest

    made = prepared()
    assert made.labels.names == ("0", "1", "2")
    assert sum(split.rows for split in made.splits.values()) == 60
    other = prepared("--split-seed", 1, "--force")
    assert [split.rows for split in other.splits.values()] == [48, 6, 6]
    assert other.splits["test"].shards != made.splits["test"].shards
    again = prepared("--force", "--task", "score")
    assert (again.labels.low, again.labels.high) == (0, 2)
    sizes = prepared("--dev", reviews_csv, "--test", reviews_csv, "--force").splits
    assert [(own.rows, own.texts, own.in_train) for own in sizes.values()] == [
        (60, 60, 0),
        (60, 60, 60),
        (60, 60, 60),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sick-relatednes"], "did you mean 'sick-relatedness'"),
        (["planted", "planted"], "one too many"),
        (["snli"], "--from"),
        (["FILE"], "--text COLUMN --label COLUMN"),
        (["FILE", "--text", "reviw", "--label", "stars"], "did you mean 'review'"),
        ([*OWN, "--split", "a/b"], "0.8/0.1/0.1"),
        ([*OWN, "--low", "1"], "--task score"),
        ([*OWN, *SCORES, "--low", "1"], "--low and --high"),
        (
            [*OWN, *SCORES, "--low", "3", "--high", "5"],
            "is outside 3 to 5. Correct it, or set the range with --low and --high",
        ),
        (["none.csv", "--text", "a", "--label", "b"], "none.csv: there is no such file"),
        (["some:where", "--text", "a", "--label", "b"], "some:where: there is no such file"),
        (["planted", "--option", "rows"], "NAME=VALUE"),
        (["planted", "--low", "0"], "--low is for files of your own"),
        (["planted", "--text", "a"], "--text is for files of your own"),
        (["planted", "--task", "score"], "--task is for files of your own"),
        ([*OWN, "--from", "."], "--from is for known datasets"),
        ([*OWN, "--option", "a=1"], "--option is for known"),
        ([*OWN, "--split", "1/nan/1"], "do not cut"),
        ([*OWN, *SCORES, "--low", "nan", "--high", "3"], "finite bounds"),
        ([*OWN, *SCORES, "--low", "0", "--high", "inf"], "finite bounds"),
        ([*OWN, *SCORES, "--low", "0", "--high", "1e40"], "32 bits"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, reviews_csv: Path, arguments: list[str], message: str
) -> None:
    given = [str(reviews_csv) if item == "FILE" else item for item in arguments]
    with pytest.raises(DataError) as error:
        run("prepare", *given, "--out", tmp_path / "out")
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()
