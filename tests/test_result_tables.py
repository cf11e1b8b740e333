"""The tables of README and docs are what their CSVs say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest


def test_the_documents_have_the_figures_of_their_files(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = runpy.run_path(str(repository / "docs" / "result_tables.py"))
    assert program["main"](["--check"], repository) == 0, capsys.readouterr()
