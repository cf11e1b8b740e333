"""What Linux says about a process."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rss_rl import proc_stat
from rss_rl.proc_stat import read_proc_stat


def test_a_program_may_have_any_name(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 ("
    program.symlink_to(shutil.which("sleep") or "sleep")
    own = read_proc_stat(os.getpid())
    with subprocess.Popen([program, "60"]) as process:
        found = read_proc_stat(process.pid)
        process.kill()
    assert own is not None
    assert found is not None
    assert (found.state != "Z", found.parent) == (True, os.getpid())
    assert found.started >= own.started
    assert read_proc_stat(process.pid) is None


@pytest.mark.parametrize("content", ["", "1 (a) S", "1 (a) S x" + " 0" * 20])
def test_anything_else_is_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(proc_stat, "PROC", tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/stat").write_text(content)
    assert read_proc_stat(1) is None
