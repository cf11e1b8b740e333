"""What Linux says about a process."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

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
