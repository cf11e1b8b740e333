"""An export that another process was replacing when it was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rss_rl
from rss_rl.durable import aside_of
from rss_rl.errors import CheckpointError
from rss_rl.inference.artifact import export_run


def test_an_export_mends_what_another_left(run: Path, tmp_path: Path) -> None:
    out = export_run(run, tmp_path / "model")
    os.replace(out, aside_of(out))
    with pytest.raises(
        CheckpointError, match=r"was killed.*\.replaced-model.*Export the run again"
    ):
        rss_rl.load(out)
    with pytest.raises(CheckpointError, match="already holds an export"):  # it is back
        export_run(run, out)
    rss_rl.load(out)
    aside_of(out).mkdir()
    (aside_of(out) / "piece").write_text("left over")
    export_run(run, out, overwrite=True)
    assert os.listdir(tmp_path) == ["model"]
    rss_rl.load(out)
