"""The tables of README and docs are what their CSVs say."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path("tests/benchmarks/results")


@pytest.fixture
def program(repository: Path) -> Any:
    source = repository / "docs" / "result_tables.py"
    spec = importlib.util.spec_from_file_location("result_tables", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(repository: Path, tmp_path: Path) -> Path:
    """The documents with what they are written from, to be spoilt."""
    for name in (Path("docs"), Path("configs"), RESULTS):
        shutil.copytree(repository / name, tmp_path / name)
    shutil.copyfile(repository / "README.md", tmp_path / "README.md")
    return tmp_path


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_documents_have_the_figures_of_their_files(
    program: Any, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--check"], repository) == 0, capsys.readouterr()


def test_a_changed_digit_is_found_and_put_right(
    program: Any, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (copy / "README.md").read_text(encoding="utf-8")
    change(copy / "README.md", "AUPRC .480", "AUPRC .481")
    assert program.main(["--check"], copy) == 1
    assert "AUPRC .481" in capsys.readouterr().out
    assert "AUPRC .481" in (copy / "README.md").read_text(encoding="utf-8")  # nothing is written
    assert program.main([], copy) == 0
    assert (copy / "README.md").read_text(encoding="utf-8") == before


def test_mean_and_deviation_are_of_the_runs_or_their_summary(program: Any) -> None:
    runs = [{"row": "a", "r": "0.5"}, {"row": "a", "r": "0.7"}]
    assert program.cell("r {r:.3}", runs) == "r .600 (.141)"
    assert program.cell("{r:0.1%m}", runs) == "60.0%"
    summary = {"row": "a", "runs": "3", "r": "0.62", "r_sd": "0.01"}
    assert program.cell("{a/r:.2}", [*runs, summary]) == ".62 (.01)"
    assert program.cell("{b/r:.2}", runs) == ""
