"""Tables under one directory read each other's finished runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from table_runs import write_table_file
from typer.testing import CliRunner, Result

from rss_rl.cli.main import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["table", *map(str, arguments), "--no-timing"])


def test_what_another_table_has_finished_is_read_and_not_made(tmp_path: Path) -> None:
    own, out = write_table_file(tmp_path / "own.yaml"), tmp_path / "out"
    assert run(own, "--out", out, "--seeds", "0").exit_code == 0
    (out / "own" / "planted" / "mean" / "seed-0" / "report.json").unlink()  # not finished after all
    shutil.copy(own, tmp_path / "other.yaml")
    result = run(tmp_path / "other.yaml", "--out", out, "--seeds", "0")
    assert result.exit_code == 0, result.output
    assert result.output.count(": begins") == 1
    assert "planted/mean/seed-0: finished after" in result.output
    made = [path.parent.parent.name for path in (out / "other").rglob("report.json")]
    assert made == ["mean"]
    header, first, *_ = (out / "own" / "table.csv").read_text().splitlines()
    score = header.split(",").index("accuracy_percent")
    again = (out / "other" / "table.csv").read_text().splitlines()[1]
    assert again.split(",")[score] == first.split(",")[score]
