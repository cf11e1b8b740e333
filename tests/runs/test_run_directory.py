"""One trainer a directory, nothing overwritten unasked, and clear words for the rest."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import yaml

from rss_rl.errors import CheckpointError
from rss_rl.runs.checkpoint import save_checkpoint
from rss_rl.runs.run_directory import RunDirectory

CONFIG = {"seed": 3, "phases": [{"name": "warm-up", "steps": None}], "data": "prepared/sick"}

HOLDER = """
    import sys, time
    from pathlib import Path
    from rss_rl.runs.run_directory import RunDirectory
    run = RunDirectory.create(Path(sys.argv[1]), {"seed": 1})
    print("locked", flush=True)
    time.sleep(60)
"""


def test_the_configuration_comes_back(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "a" / "run", CONFIG) as run:
        assert run.path.is_absolute()
    found = RunDirectory.open(tmp_path / "a" / "run")
    assert found.config == CONFIG
    text = (found.path / "config.yaml").read_text()
    assert yaml.safe_load(text) == CONFIG
    assert text.startswith("seed: 3")  # in the order of the sections, not of the alphabet


def test_a_run_is_not_overwritten_unasked(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, CONFIG) as run:
        save_checkpoint(run.path, 1, {"a": np.zeros(1)}, {}, keep_last=1)
        run.write_report({"steps": 1})
        for name in ("metrics", "tensorboard", "inputs"):
            (tmp_path / name).mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".tmp-report.json-12").touch()  # of a process that was killed
    with pytest.raises(CheckpointError, match="there is already a run.*--resume.*--overwrite"):
        RunDirectory.create(tmp_path, CONFIG)
    with RunDirectory.create(tmp_path, {"seed": 4}, overwrite=True):
        pass
    assert sorted(os.listdir(tmp_path)) == ["config.json", "config.yaml", "notes.txt", "run.lock"]
    assert RunDirectory.open(tmp_path).config == {"seed": 4}


@pytest.mark.parametrize(
    "place",
    [
        *("checkpoints", "checkpoints/.tmp-x", "metrics", "tensorboard/run", "inputs", "wandb"),
        *("all-tokens", "all-tokens/metrics", "events.jsonl", "wandb-id", ".tmp-status.json-7"),
    ],
)
def test_a_run_that_leads_elsewhere_is_not_written_to(place: str, tmp_path: Path) -> None:
    mine, run = tmp_path / "mine", tmp_path / "run"
    mine.mkdir()
    (mine / "part-000000.parquet").write_text("mine")
    with RunDirectory.create(run, CONFIG):
        (run / place).parent.mkdir(exist_ok=True)
        (run / "notes").mkdir()
        (run / "notes" / "link").symlink_to(mine)  # no part of a run
    RunDirectory.open(run, lock=True).close()
    for plant in (lambda path: path.symlink_to(mine), os.mkfifo):
        plant(run / place)
        for use in (
            lambda: RunDirectory.open(run, lock=True),
            lambda: RunDirectory.create(run, CONFIG, overwrite=True),
        ):
            with pytest.raises(CheckpointError, match=f"{place}: a link, a pipe or a device"):
                use()
        (run / place).unlink()
    assert (mine / "part-000000.parquet").read_text() == "mine"


def test_a_filesystem_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(CheckpointError, match="no locks.*No locks available.*another disk"):
        RunDirectory.create(tmp_path / "run", CONFIG)


def test_what_is_no_run_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(CheckpointError, match="not empty and holds no run"):
            RunDirectory.create(tmp_path, CONFIG, overwrite=overwrite)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_two_trainers_cannot_share_a_directory(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout:
        try:
            assert process.stdout.readline() == "locked\n"
            who = f"process {process.pid} on .* is training there"
            with pytest.raises(CheckpointError, match=who):
                RunDirectory.create(tmp_path, CONFIG, overwrite=True)
            with pytest.raises(CheckpointError, match=who):
                RunDirectory.open(tmp_path, lock=True)
            assert RunDirectory.open(tmp_path).config == {"seed": 1}  # reading needs no lock
        finally:
            process.send_signal(signal.SIGKILL)
    with RunDirectory.open(tmp_path, lock=True):  # the lock of a dead process is free
        text = (tmp_path / "run.lock").read_text()
        assert text.startswith(f"process {os.getpid()} on ")
        with pytest.raises(CheckpointError, match="is training there"):
            RunDirectory.open(tmp_path, lock=True)
    RunDirectory.open(tmp_path, lock=True).close()


def test_reports_come_back_without_what_json_cannot_hold(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, CONFIG) as run:
        with pytest.raises(CheckpointError, match=r"report\.json: missing.*--resume"):
            run.read_report()
        report = {"splits": {"test": {"all": {"pearson": float("nan"), "mse": 0.25}}}, "a": [1, 2]}
        path = run.write_report(report)
        expected = {"splits": {"test": {"all": {"pearson": None, "mse": 0.25}}}, "a": [1, 2]}
        assert run.read_report() == expected
        assert json.loads(path.read_text()) == expected
        with pytest.raises(CheckpointError, match="would not read back equal"):
            run.write_report({"a": np.zeros(1)})
        assert run.read_report() == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "missing"),
        ("{", "unreadable"),
        ('{"schema_version": 9, "config": {}}', "schema version 9"),
        ('{"schema_version": 1, "config": []}', "not the configuration"),
        ('{"schema_version": 1, "config": {"a": NaN}}', "NaN"),
    ],
)
def test_what_is_no_run_is_named(tmp_path: Path, text: str | None, what: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=rf"config\.json.*{what}") as caught:
        RunDirectory.open(tmp_path)
    assert caught.value.remedy


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / "\udcff"):
        with pytest.raises(CheckpointError, match="cannot be used.*Choose a directory"):
            RunDirectory.create(path, CONFIG)
