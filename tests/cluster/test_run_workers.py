"""What two commands that make one table with workers must not do to each other."""

from __future__ import annotations

from pathlib import Path

from rss_rl.cluster.run_workers import RayWorkers


def test_the_stop_of_another_command_is_its_own(tmp_path: Path) -> None:
    """Neither obeyed nor taken away: its runs would continue, or ours end without a word."""
    folder = tmp_path / "own"
    folder.mkdir()
    others = folder / ".stop-elsewhere-1"
    others.touch()
    workers = RayWorkers(2, folder, lambda: False, lambda run, line: None)
    assert not Path(workers.stop_file).exists()
    workers.close()
    assert others.exists()
    Path(workers.stop_file).touch()
    workers.close()
    assert list(folder.iterdir()) == [others]
