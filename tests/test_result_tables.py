"""Tables and sentences of README and docs are what their CSVs say."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

RESULTS = Path("tests/benchmarks/results")
PAPERS = Path("docs/results/papers.md")


def load(repository: Path) -> Any:
    source = repository / "docs" / "result_tables.py"
    spec = importlib.util.spec_from_file_location("result_tables", source)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(root: Path, *options: str) -> Done:
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = load(root).main(options, root)
    return Done(code, output.getvalue(), errors.getvalue())


@pytest.fixture
def copy(repository: Path, tmp_path: Path) -> Path:
    """The documents with what they are written from, to be spoilt."""
    for name in ("docs", "configs", RESULTS):
        shutil.copytree(repository / name, tmp_path / name)
    shutil.copyfile(repository / "README.md", tmp_path / "README.md")
    return tmp_path


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_documents_have_the_figures_of_their_files(repository: Path) -> None:
    command = [sys.executable, str(repository / "docs/result_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("document", "right", "wrong"),
    [
        ("README.md", "AUPRC .480", "AUPRC .481"),
        ("docs/performance.md", "| 264 | 3.7 |", "| 264 | 3.8 |"),
        ("docs/results/papers.md", "| 82.5 (2.2) |", "| 82.9 (2.2) |"),
        ("docs/results/rationales.md", "| 4.9 (0.8) |", "| 4.8 (0.8) |"),
    ],
)
def test_a_changed_digit_is_found_and_put_right(
    copy: Path, document: str, right: str, wrong: str
) -> None:
    before = (copy / document).read_text(encoding="utf-8")
    change(copy / document, right, wrong)
    done = run(copy, "--check")
    assert done.returncode == 1
    assert wrong in done.stdout
    assert wrong in (copy / document).read_text(encoding="utf-8")  # a check writes nothing
    assert run(copy).returncode == 0
    assert (copy / document).read_text(encoding="utf-8") == before


def test_a_changed_run_changes_the_documents(copy: Path) -> None:
    change(copy / RESULTS / "ablation.csv", "0.7437907166123778", "0.7337")
    done = run(copy, "--check")
    assert done.returncode == 1
    assert re.search(r"^\+\| w/o soft self-attention .* 73\.4% ", done.stdout, re.MULTILINE)


DEMO = RESULTS / "recorded/demo_real.csv"


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        (Path("README.md"), "77.2% with 14.0%", "77.3% with 14.0%"),
        (DEMO, "0.772,0.013", "0.771,0.013"),
        (Path("README.md"), "{policy/kept:0.1%m}", "{polity/kept:0.1%m}"),
    ],
    ids=["sentence", "figure", "field"],
)
def test_a_sentence_that_differs_from_its_files_is_an_error(
    copy: Path, file: Path, right: str, wrong: str
) -> None:
    change(copy / file, right, wrong)
    for options in ([], ["--check"]):
        done = run(copy, *options)
        assert done.returncode == 1
        assert "error: README.md: line " in done.stderr
        assert "the sentence is not " in done.stderr


@pytest.mark.parametrize(
    ("file", "right", "wrong", "said"),
    [
        (PAPERS, "words cost .2", "words cost .1", "is not 'Two fifths of the words cost .2"),
        (PAPERS, "above the published ones", ".019 above the published ones", "is not 'are .012"),
        (RESULTS / "snli_kept.csv", "for,0,0.74", "for,0,0.84", "words give 78.1%"),
        (Path("configs/tables/sick.yaml"), ".8695", ".8795", "our DiSAN .016 below"),
        (Path("docs/results/rationales.md"), "206 times", "207 times", "LIME took 206 times"),
        (PAPERS, "a tenth of each", "11% of each", "figures without a file: 11"),
        (PAPERS, "at equal r.", "at r = .86.", "figures without a file: .86"),
        (PAPERS, "took 165 s for", "took 1165 s for", "is not 'took 165 s for"),
        (Path("docs/tutorials/own-data.md"), "A thousand rows", "2.5% of", "a file: 2.5"),
    ],
)
def test_every_figure_in_a_sentence_of_results_has_a_file(
    copy: Path, file: Path, right: str, wrong: str, said: str
) -> None:
    change(copy / file, right, wrong)
    done = run(copy, "--check")
    assert done.returncode == 1
    assert said in done.stderr


def hand_made(table: str) -> Callable[[Path], None]:
    def spoil(root: Path) -> None:
        with (root / PAPERS).open("a", encoding="utf-8") as file:
            file.write(f"\n{table}\n")

    return spoil


TABLE = "| a | b |\n|---|---|\n| 1 | .5 |"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda root: change(root / PAPERS, "recorded/sick.csv", "lost.csv"), "lost.csv"),
        (lambda root: change(root / PAPERS, "table: sick ", "table: sock "), "no table 'sock'"),
        (
            lambda root: change(root / PAPERS, "<!-- end -->", ""),
            "a table with decimals has no CSV",
        ),
        (
            lambda root: change(root / RESULTS / "recorded/sick.csv", "epoch_s", "epoch_ms"),
            "the column 'epoch' has no figures",
        ),
        (hand_made(TABLE), "a table with decimals has no CSV"),
        (
            lambda root: change(
                root / RESULTS / "recorded/sick.csv", "0.8626,0.0006", "0.8636,0.0006"
            ),
            "pearson 0.8636 (0.0006) contradicts the runs that are kept",
        ),
    ],
    ids=["missing file", "unknown table", "no end", "no column", "by hand", "contradiction"],
)
def test_what_cannot_be_written_is_an_error(
    copy: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(copy)
    for options in ([], ["--check"]):
        done = run(copy, *options)
        assert done.returncode == 1
        assert "error: papers.md: " in done.stderr
        assert said in done.stderr


def test_a_table_by_hand_has_a_reason(copy: Path) -> None:
    hand_made(f"<!-- by hand: an example -->\n\n{TABLE}")(copy)
    assert run(copy, "--check").returncode == 0


def test_runs_rule_out_only_summaries_that_they_cannot_have(repository: Path) -> None:
    program = load(repository)
    generator = np.random.default_rng(0)
    for _ in range(200):
        count = int(generator.integers(2, 11))
        known = int(generator.integers(1, count))
        runs = [float(x) for x in generator.normal(0.8, 0.02, count)]
        mean, deviation = statistics.fmean(runs), statistics.stdev(runs)
        assert program.possible(runs[:known], count, f"{mean:.3f}", f"{deviation:.3f}")
        # The unknown runs spread least where they are equal, and add up to what is missing.
        missing = (count * mean - sum(runs[:known])) / (count - known)
        least = statistics.stdev(runs[:known] + [missing] * (count - known))
        assert program.possible(runs[:known], count, f"{mean:.9f}", f"{least + 1e-7:.9f}")
        assert not program.possible(runs[:known], count, f"{mean:.9f}", f"{least - 1e-7:.9f}")
