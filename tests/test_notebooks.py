"""The tutorials that are notebooks run from the first cell to the last."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = "docs/tutorials/first-run.ipynb"


@pytest.fixture(scope="module")
def cells(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The code cells, executed by a kernel of their own, which a read-only home is enough for."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient and ipykernel run notebooks")
    pytest.importorskip("ipykernel", reason="nbclient and ipykernel run notebooks")
    import nbformat

    notebook = nbformat.read(repository / NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=90, kernel_name="python3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        patch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        client.execute(env=dict(os.environ))
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pages(cell: Any) -> list[str]:
    """The HTML that a cell shows."""
    data = (output.get("data", {}) for output in cell.outputs)
    return [shown["text/html"] for shown in data if "text/html" in shown]


def test_the_notebook_runs_and_shows_what_it_says(cells: list[Any]) -> None:
    fitted, explained, printed, plotted = cells[1:]
    assert "thresholded" in pages(fitted)[-1]
    assert "<mark " in pages(explained)[0]
    assert "up (" in printed.outputs[0]["data"]["text/plain"]
    assert any("image/png" in output.get("data", {}) for output in plotted.outputs)


def test_progress_leaves_a_line_for_each_phase(cells: list[Any]) -> None:
    said = "".join(pages(cells[1]))
    assert "warn" not in said  # of rich, that it needs ipywidgets
    for phase in ("warm-up", "frozen", "co-train"):
        assert f"{phase}: " in said
