"""A run that is copied to a storage path, and resumed by a machine that has nothing else."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from dying import DyingFileSystem, storage_at
from invoking import invoke
from tiny_runs import Outcome

from rss_rl.config import RunConfig
from rss_rl.errors import StorageError
from rss_rl.logs.events import parse_events
from rss_rl.logs.metrics import read_metrics
from rss_rl.mirror import mirror
from rss_rl.runs.checkpoint import checkpoint_steps, load_checkpoint
from rss_rl.runs.run_directory import EVENTS_FILE
from rss_rl.training.run import Finished, train
from rss_rl.training.trainer import PhaseBegan, Stopped, Updated

LIVES = """
    import json, os, signal, sys
    from pathlib import Path
    from rss_rl.config import parse_config
    from rss_rl.training.run import train
    from rss_rl.training.trainer import Updated

    config = parse_config(json.loads(Path(sys.argv[1]).read_text()), where="test")
    place = Path(sys.argv[2])
    there = place / "there"

    def live(number, kill):
        updates = 0
        machine = place / f"machine-{number}" / "run"
        for event in train(config, machine, resume=True, storage=f"file://{there}"):
            updates += isinstance(event, Updated)
            if updates >= kill and (there / "checkpoints" / "LATEST").exists():
                os.kill(os.getpid(), signal.SIGKILL)

    for number, kill in enumerate((9, 12)):  # the library is imported once, each process is a fork
        child = os.fork()
        if child == 0:
            live(number, kill)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def events_of(run: Path) -> list[str]:
    return [event["event"] for event in parse_events((run / EVENTS_FILE).read_bytes())]


def test_machine_after_machine_is_killed(
    tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    """Each process begins with an empty disk; the storage is all that is left of the one before."""
    config, there = tmp_path / "config.json", tmp_path / "there"
    config.write_text(tiny().model_dump_json())
    there.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(LIVES), str(config), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ended.stdout.split() == [str(-signal.SIGKILL)] * 2, ended.stderr
    assert load_checkpoint(there).warnings == ()
    uri = f"file://{there}"
    events = list(train(tiny(), tmp_path / "last", resume=True, storage=uri))
    first = events[0]
    assert isinstance(first, PhaseBegan)
    assert first.update + first.done > 0  # not from the beginning
    assert isinstance(events[-1], Finished)
    Outcome.read(tmp_path / "last").assert_equals(reference)
    Outcome.read(there).assert_equals(reference)
    assert events_of(there).count("storage_restored") >= 2
    assert events_of(there)[-1] == "run_finished"
    assert not (there / "writer.json").exists()


def test_a_stop_brings_everything_there(
    tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    made: list[Updated] = []
    uri = str(tmp_path / "there")
    for event in train(tiny(), tmp_path / "run", stop=lambda: len(made) >= 21, storage=uri):
        if isinstance(event, Updated):
            made.append(event)
        last = event
    assert last == Stopped(21)
    assert load_checkpoint(tmp_path / "there").step == 21
    with pytest.raises(StorageError, match="there is already a run"):
        next(iter(train(tiny(), tmp_path / "new", storage=uri)))
    list(train(tiny(), tmp_path / "second", resume=True, storage=uri))
    Outcome.read(tmp_path / "second").assert_equals(reference)
    tags = {row["tag"] for row in read_metrics(tmp_path / "second").to_pylist()}
    assert {"storage/failures", "storage/lag_checkpoints", "storage/upload_s"} <= tags


def test_a_full_storage_stops_nothing_and_the_end_names_what_is_whole(
    tiny: Callable[..., RunConfig],
    reference: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = DyingFileSystem(40, errno.ENOSPC)
    (tmp_path / "there").mkdir()
    monkeypatch.setattr(mirror, "open_storage", lambda _: storage_at(tmp_path / "there", full))
    for name, value in {"_RETRY_S": 0.01, "_LONGEST_RETRY_S": 0.01, "_LAST_TRIES": 2}.items():
        monkeypatch.setattr(mirror, name, value)
    with pytest.raises(StorageError) as caught:
        list(train(tiny(), tmp_path / "run", storage="anything"))
    assert "the storage is gone" in str(caught.value)
    assert str(tmp_path / "run") in caught.value.remedy
    Outcome.read(tmp_path / "run").assert_equals(reference)  # whole, report included
    kinds = events_of(tmp_path / "run")
    assert "storage_failed" in kinds
    assert "run_failed" in kinds
    assert load_checkpoint(tmp_path / "there").warnings == ()  # what was there before is sound
    full.left = 10**9
    # On a full storage the writer could not say that it ended; without take_over it is waited for.
    again = train(tiny(), tmp_path / "run", resume=True, storage="anything", take_over=True)
    assert isinstance(list(again)[-1], Finished)
    Outcome.read(tmp_path / "there").assert_equals(reference)


def test_the_command_line_gets_a_run_this_machine_does_not_have(
    tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    there = str(tmp_path / "there")
    brief = tiny(phases=[{"name": "all", "supervised": True, "selection": "all", "steps": 2}])
    list(train(brief, tmp_path / "run", stop=lambda: True, storage=there))
    shutil.rmtree(tmp_path / "run")
    arguments = ["train", "--resume", str(tmp_path / "run"), "--storage", there]
    result = invoke(arguments)
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "run" / "report.json").read_text())["steps"] == 2
    assert checkpoint_steps(tmp_path / "there") == checkpoint_steps(tmp_path / "run")
    assert (tmp_path / "there" / "report.json").is_file()
    assert os.listdir(tmp_path / "there" / "tensorboard")
