"""`rss-rl fit` as a newcomer types it: a table in, a page to open out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import static_vectors
from typer.testing import CliRunner

from rss_rl.cli.main import app
from rss_rl.data.store import open_prepared

SMALL = [
    "batch_size=8",
    "model.hidden=4",
    "model.attention=eager",
    "policy.options.hidden=3",
    "evaluation.all_tokens=false",
    "phases.0.steps=4",
    "phases.1.steps=4",
    "phases.2.steps=4",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "reviews.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["review", "stars"])
        for number in range(120):
            word, label = (("fine", "up"), ("dull", "down"))[number % 2]
            rows.writerow([f"a {word} one of {number % 7}", label])
    return path


def fitted(table: Path, out: Path, *more: str) -> str:
    how = ["--text", "review", "--label", "stars", "--keep", "0.4", "--out", str(out)]
    result = CliRunner().invoke(app, ["fit", str(table), *how, *more, *SMALL])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_it_ends_with_a_page_to_open(table: Path, tmp_path: Path) -> None:
    said = fitted(table, tmp_path / "run")
    page = tmp_path / "run" / "report.html"
    assert str(page) in said.replace("\n", "")
    assert "40%" in page.read_text(encoding="utf-8")  # asked for


def test_as_json_it_prints_the_report_and_nothing_else(table: Path, tmp_path: Path) -> None:
    assert json.loads(fitted(table, tmp_path / "run", "--json"))["steps"] > 0
    assert not (tmp_path / "run" / "report.html").exists()


def test_vectors_of_a_package_serve_where_none_are_given(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says which vectors it took, and how to have others."""
    monkeypatch.setattr("rss_rl.api.fitting.PACKAGES", ("carries_vectors_for_fit",))
    said = fitted(table, tmp_path / "without")
    assert "learnt from these texts alone" in said
    assert "pip install carries_vectors_for_fit" in " ".join(said.split())
    static_vectors.save(tmp_path / "packages" / "carries_vectors_for_fit")
    (tmp_path / "packages" / "carries_vectors_for_fit" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    assert "static:carries_vectors_for_fit" in fitted(table, tmp_path / "with")
    with_them = open_prepared(tmp_path / "with-data").manifest.vectors
    assert with_them.widths == (2,)
    glove = tmp_path / "glove.txt"
    glove.write_text("fine 1 2 3\ndull 4 5 6\n")
    fitted(table, tmp_path / "given", "--vectors", str(glove))
    assert open_prepared(tmp_path / "given-data").manifest.vectors.widths == (3,)
