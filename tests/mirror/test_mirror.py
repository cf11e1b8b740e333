"""The copy of a run on a storage path: whole whenever its writer dies, and never in the way."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dying import DyingFileSystem, storage_at
from mirrored import CONFIG, SlowStorage, checkpoint, mirror, synced, wait_for

from rss_rl.errors import CheckpointError, StorageError
from rss_rl.logs.events import EventLog, parse_events
from rss_rl.mirror.lease import WRITER_FILE
from rss_rl.mirror.restore import continue_from, refuse_foreign, refuse_present
from rss_rl.runs.checkpoint import load_checkpoint, mark_checkpoint
from rss_rl.runs.run_directory import ALL_TOKENS, EVENTS_FILE, RunDirectory
from rss_rl.storage import open_storage


def moments(run: Path) -> Iterator[int]:
    """A run in seven moments; at each it yields the value of its newest checkpoint."""
    (run / "inputs").mkdir()
    (run / "inputs" / "vocabulary.json").write_text("{}")
    checkpoint(run, 0, 1)
    yield 1
    checkpoint(run, 5, 2)  # the one before it goes
    mark_checkpoint(run, 5, "fork")
    yield 2
    checkpoint(run, 9, 3)
    mark_checkpoint(run, 9)
    yield 3
    checkpoint(run, 9, 4)  # the same step with another state, as at the end of a phase
    yield 4
    checkpoint(run, 9, 5)
    (run / "metrics").mkdir()
    (run / "metrics" / "part-000000.parquet").write_bytes(b"rows")
    yield 5
    checkpoint(run, 12, 6)
    mark_checkpoint(run, 12)
    (run / ALL_TOKENS).mkdir()
    checkpoint(run / ALL_TOKENS, 7, 7)
    yield 6
    for name in ("report.json", "report.html", "provenance.json", "evaluated.json"):
        (run / name).write_text("{}")
    yield 6


def live_until_dead(filesystem: DyingFileSystem, place: Path) -> int:
    """Live a run with a mirror until its storage dies; the last value that was brought there."""
    (place / "there").mkdir(parents=True)
    brought = 0
    with RunDirectory.create(place / "here", CONFIG) as run:
        try:
            made = mirror(storage_at(place / "there", filesystem), run.path)
        except StorageError:
            return brought
        try:
            for value in moments(run.path):
                made.finish()
                brought = value
        except StorageError as error:
            assert "the storage is gone" in str(error)
            assert str(run.path) in error.remedy
        finally:
            made.close()
    return brought


def test_whenever_the_writer_dies_the_storage_can_be_gone_on_with(tmp_path: Path) -> None:
    whole = DyingFileSystem()
    assert live_until_dead(whole, tmp_path / "whole") == 6
    assert whole.counted > 50
    seen = set()
    for left in range(0, whole.counted, 3):  # three moments lie between two files
        place = tmp_path / str(left)
        brought = live_until_dead(DyingFileSystem(left), place)
        storage = open_storage(str(place / "there"))
        refuse_foreign(storage)  # what a writer left is a run's, however little it is
        restored = continue_from(storage, place / "fresh", CONFIG)
        if restored is None:
            assert brought == 0
            continue
        found = load_checkpoint(place / "fresh")
        if (place / "there" / "checkpoints" / "LATEST").exists():
            assert found.warnings == (), left
        else:
            assert brought == 0
        assert (found.tensors["a"] == found.state["value"]).all()
        assert found.state["value"] in (brought, brought + 1), left
        if found.step >= 5:
            assert load_checkpoint(place / "fresh", "fork").step == 5
        seen.add(found.state["value"])
    assert len(seen) >= 5


def test_what_a_whole_run_leaves_there(tmp_path: Path) -> None:
    live_until_dead(DyingFileSystem(), tmp_path)
    names = set(open_storage(str(tmp_path / "there")).files())
    steps = {path.name for path in (tmp_path / "there" / "checkpoints").glob("step-*")}
    assert steps == {"step-000005", "step-000009", "step-000012"}  # as here, after pruning
    assert steps == {path.name for path in (tmp_path / "here" / "checkpoints").glob("step-*")}
    assert {"config.json", "config.yaml", "inputs/vocabulary.json", "report.json"} <= names
    assert {"provenance.json", "report.html", "evaluated.json"} <= names
    assert "run.lock" not in names
    assert WRITER_FILE not in names  # let go of
    assert not list((tmp_path / "there").rglob(".tmp-*"))
    continue_from(open_storage(str(tmp_path / "there")), tmp_path / "fresh", CONFIG)
    assert load_checkpoint(tmp_path / "fresh" / ALL_TOKENS).state == {"value": 7}
    assert load_checkpoint(tmp_path / "fresh", "best").step == 12
    assert (tmp_path / "fresh" / "metrics" / "part-000000.parquet").read_bytes() == b"rows"
    assert RunDirectory.open(tmp_path / "fresh").config == CONFIG


def open_below(folder: Path) -> int:
    """Files below a folder that this process has open; other tests may leave others."""
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists the others
            targets.append(os.readlink(link))
    return sum(target.startswith(str(folder)) for target in targets)


def test_the_learner_never_waits_and_the_newest_state_wins(tmp_path: Path) -> None:
    base = storage_at(tmp_path / "there")
    storage = SlowStorage(base.uri, base.filesystem, base.root, threading.Event())
    with RunDirectory.create(tmp_path / "run", CONFIG) as run:
        made = mirror(storage, run.path)
        before = open_below(tmp_path)
        for step in range(1, 9):
            checkpoint(run.path, step, step)  # keep_last=1: what is uploaded is long gone here
            started = time.perf_counter()
            made.changed()
            assert time.perf_counter() - started < 1
        assert made.scalars()["storage/lag_checkpoints"] == 8
        storage.gate.set()
        made.finish()
        assert made.scalars()["storage/lag_checkpoints"] == 0
        assert made.scalars()["storage/failures"] == 0
        made.close()
        assert open_below(tmp_path) <= before
    steps = {name.split("/")[1] for name in storage.files() if "step-" in name}
    assert steps == {"step-000008"}


def test_a_silent_storage_is_not_waited_for_once_a_stop_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rss_rl.mirror.mirror._SILENT_S", 0.5)
    base = storage_at(tmp_path / "there")
    storage = SlowStorage(base.uri, base.filesystem, base.root, threading.Event())
    with RunDirectory.create(tmp_path / "run", CONFIG) as run:
        asked = threading.Event()
        made = mirror(storage, run.path, stop=asked.is_set)
        checkpoint(run.path, 1, 1)
        threading.Timer(1.0, asked.set).start()  # Ctrl-C, while it waits
        began = time.monotonic()
        with pytest.raises(StorageError, match=r"not uploaded: no answer for .*--resume"):
            made.finish()
        made.close()
        assert 1.0 < time.monotonic() - began < 4.0
    storage.gate.set()


def test_a_storage_that_recovers_costs_a_delay(tmp_path: Path) -> None:
    filesystem = DyingFileSystem()
    with RunDirectory.create(tmp_path / "run", CONFIG) as run:
        made = mirror(storage_at(tmp_path / "there", filesystem), run.path)
        log = EventLog(run.path)
        made._log = log
        filesystem.left = 3
        checkpoint(run.path, 1, 1)
        made.changed()
        wait_for(lambda: made.scalars()["storage/failures"] >= 2)
        assert made.scalars()["storage/lag_checkpoints"] == 1
        filesystem.left = 10**9
        wait_for(lambda: made.scalars()["storage/lag_checkpoints"] == 0)
        made.close()
        events = parse_events((run.path / EVENTS_FILE).read_bytes())
    kinds = [event["event"] for event in events]
    assert kinds[:2] == ["storage_failed", "storage_failed"]
    assert kinds[-1] == "storage_synced"
    assert events[0]["level"] == "warning"
    assert "the storage is gone" in events[0]["cause"]


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_any_filesystem(kind: str, tmp_path: Path) -> None:
    storage = open_storage(f"{kind}://{tmp_path}/there")
    with RunDirectory.create(tmp_path / "run", CONFIG) as run:
        made = mirror(storage, run.path)
        for _ in moments(run.path):
            made.finish()
        made.close()
    assert continue_from(storage, tmp_path / "fresh", CONFIG)
    assert load_checkpoint(tmp_path / "fresh").state == {"value": 6}
    assert load_checkpoint(tmp_path / "fresh", "best").state == {"value": 6}


class TestRestore:
    def test_a_directory_with_checkpoints_stays_as_it_is(self, tmp_path: Path) -> None:
        storage = synced(tmp_path, 4)
        with RunDirectory.create(tmp_path / "run", CONFIG) as run:
            checkpoint(run.path, 6, 6)
        assert continue_from(storage, tmp_path / "run", CONFIG) is None
        assert load_checkpoint(tmp_path / "run").step == 6

    def test_a_storage_that_is_ahead_is_not_overwritten(self, tmp_path: Path) -> None:
        storage = synced(tmp_path, 8)
        with RunDirectory.create(tmp_path / "run", CONFIG) as run:
            checkpoint(run.path, 6, 6)
        with pytest.raises(CheckpointError, match="2 updates ahead.*empty --out"):
            continue_from(storage, tmp_path / "run", CONFIG)
        (tmp_path / "run" / "report.json").write_text("{}")  # it keeps its best checkpoint alone
        assert continue_from(storage, tmp_path / "run", CONFIG) is None

    def test_a_damaged_newest_checkpoint_is_noticed_before_anything_changes(
        self, tmp_path: Path
    ) -> None:
        storage = synced(tmp_path, 4)
        (name,) = (name for name in storage.files() if name.endswith(".safetensors"))
        storage.write(name, b"damaged")
        with pytest.raises(CheckpointError, match="no sound checkpoint"):
            continue_from(storage, tmp_path / "run", CONFIG)
        assert sorted(os.listdir(tmp_path)) == ["first-4", "there"]

    def test_foreign_names_are_neither_fetched_nor_removed(self, tmp_path: Path) -> None:
        storage = synced(tmp_path, 4)
        foreign = ["notes.txt", "checkpoints/step-000004/x.sh", "metrics/../../escape"]
        for name in foreign[:2]:
            storage.write(name, b"mine")
        continue_from(storage, tmp_path / "run", CONFIG)
        assert not list((tmp_path / "run").rglob("*.txt"))
        assert not list((tmp_path / "run").rglob("*.sh"))
        made = mirror(storage, tmp_path / "run", keep=True)
        made.finish()
        made.close()
        assert storage.read("notes.txt") == b"mine"
        with pytest.raises(StorageError, match="no name below the root"):
            storage.download(foreign[2], tmp_path / "x")

    def test_a_run_that_is_there_is_replaced_only_when_asked(self, tmp_path: Path) -> None:
        storage = synced(tmp_path, 4)
        with pytest.raises(StorageError, match="already a run.*--resume.*--overwrite"):
            refuse_present(storage)
        with RunDirectory.create(tmp_path / "run", {"seed": 5}) as run:
            made = mirror(storage, run.path)
            assert not [name for name in storage.files() if name != WRITER_FILE]
            made.close()


def test_a_mirror_that_lost_its_lease_does_not_write(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "there"))
    with RunDirectory.create(tmp_path / "run", CONFIG) as run:
        made = mirror(storage, run.path)
        record = {"host": "elsewhere", "pid": 1, "time": time.time(), "token": "x"}
        storage.write(WRITER_FILE, json.dumps(record).encode())
        checkpoint(run.path, 1, 1)
        with pytest.raises(StorageError, match="process 1 on elsewhere has taken over"):
            made.finish()
        made.close()
    assert set(storage.files()) == {WRITER_FILE}
