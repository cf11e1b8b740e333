"""Whose a storage path and a directory are: nobody's files go, and no live writer's path."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mirrored import CONFIG, RUN, synced

from rss_rl.errors import CheckpointError, StorageError
from rss_rl.mirror.lease import WRITER_FILE, Lease
from rss_rl.mirror.mirror import open_mirror
from rss_rl.mirror.restore import continue_from
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.storage import open_storage


class TestWhatIsNoRuns:
    """Files that only bear the names of a run's are somebody's."""

    MINE = ("inputs/raw.csv", "config.yaml", "report.json")

    def test_in_a_directory_they_stay(self, tmp_path: Path) -> None:
        storage, target = synced(tmp_path, 4), tmp_path / "target"
        write_all(target, self.MINE)
        with pytest.raises(CheckpointError, match="not empty and holds no run"):
            continue_from(storage, target, CONFIG)
        write_all(target, ["config.json"])
        with pytest.raises(CheckpointError, match="not empty and holds no run"):
            continue_from(storage, target, CONFIG)
        for name in (*self.MINE, "config.json"):
            assert (target / name).read_text() == "{}"

    def test_a_directory_where_somebody_trains_stays(self, tmp_path: Path) -> None:
        storage = synced(tmp_path, 4)
        with RunDirectory.create(tmp_path / "run", CONFIG) as run:
            (run.path / "inputs").mkdir()
            with pytest.raises(CheckpointError, match="is training there"):
                continue_from(storage, run.path, CONFIG)
            assert (run.path / "inputs").is_dir()
        assert continue_from(storage, tmp_path / "run", CONFIG)  # it ended before a checkpoint

    @pytest.mark.parametrize("how", ["new", "resume", "overwrite"])
    def test_on_a_storage_they_stay(self, tmp_path: Path, how: str) -> None:
        there = tmp_path / "there"
        foreign = [*self.MINE, "tensorboard/mine", "docs/.tmp-draft-1"]
        write_all(there, foreign)
        resume, overwrite = how == "resume", how == "overwrite"
        with pytest.raises(StorageError, match="no run and would be replaced.*empty path"):
            open_mirror(str(there), tmp_path / "run", RUN, resume, overwrite)
        write_all(there, ["config.json"])
        with pytest.raises(CheckpointError, match="not the configuration of a run"):
            open_mirror(str(there), tmp_path / "run", RUN, resume, overwrite)
        assert set(open_storage(str(there)).files()) == {*foreign, "config.json"}


def write_all(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")


@pytest.mark.parametrize("left", range(5))
def test_a_restore_that_is_cut_short_can_be_repeated(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = synced(tmp_path, 4)
    for name in ("inputs/vocabulary.json", "report.json"):
        storage.write(name, b"{}")
    replace, moved = os.replace, list[str]()

    def one_less(source: Any, target: Any) -> None:
        if len(moved) == left:
            raise KeyboardInterrupt
        replace(source, target)
        if Path(target).parent == tmp_path / "fresh":
            moved.append(str(target))

    with monkeypatch.context() as patch:
        patch.setattr("rss_rl.mirror.restore.os.replace", one_less)
        with pytest.raises(KeyboardInterrupt):
            continue_from(storage, tmp_path / "fresh", CONFIG)
    assert continue_from(storage, tmp_path / "fresh", CONFIG)
    assert load_checkpoint(tmp_path / "fresh").state == {"value": 4}


def test_overwrite_does_not_take_the_path_of_a_live_writer(tmp_path: Path) -> None:
    storage = synced(tmp_path, 4)
    before = set(storage.files())
    lease = Lease(storage)
    with pytest.raises(StorageError, match="writes there.*--take-over"):
        open_mirror(storage.uri, tmp_path / "run", RUN, resume=False, overwrite=True)
    assert set(storage.files()) == before | {WRITER_FILE}
    taken = open_mirror(storage.uri, tmp_path / "run", RUN, False, True, take_over=True)
    taken.close()
    with suppress(StorageError):
        lease.renew()
