"""Kills and full disks: the last sound checkpoint stays, and the user is told."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np

from rss_rl.runs.checkpoint import checkpoint_steps, load_checkpoint, save_checkpoint

SAVE_LOOP = """
    import sys
    from pathlib import Path
    import numpy as np
    from rss_rl.runs.checkpoint import save_checkpoint

    # Each step is saved twice with another state, as after Ctrl-C just behind a checkpoint.
    for step in range(int(sys.argv[2]), 100_000):
        for turn in (0, 1):
            tensors = {"a": np.full(50_000, 2 * step + turn, np.int64)}
            save_checkpoint(Path(sys.argv[1]), step, tensors, {"turn": turn}, keep_last=1)
        print(step, flush=True)
"""

EVERY_STOP = """
    import os, sys
    from pathlib import Path
    import numpy as np
    from rss_rl.runs.checkpoint import load_checkpoint, save_checkpoint

    # The events that Python announces before it changes a name or opens a file.
    EVENTS = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree"}
    run = Path(sys.argv[1])
    save_checkpoint(run, 1, {"a": np.array(0)}, {"turn": 0}, keep_last=1)

    def save_until(stop):
        left = stop
        def count(event, arguments):
            nonlocal left
            left -= event in EVENTS
            if left == 0:
                os._exit(9)
        sys.addaudithook(count)
        save_checkpoint(run, step, {"a": np.array(turn)}, {"turn": turn}, keep_last=1)
        os._exit(0)

    for step in (1, 2):  # a step saved again, and a new one
        turn, stop, status = 0, 0, 9
        while status == 9:
            turn, stop = turn + 1, stop + 1
            child = os.fork()
            if child == 0:
                save_until(stop)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found = load_checkpoint(run)
            assert found.tensors["a"] == found.state["turn"], found
            assert not found.warnings, found
        assert status == 0 and found.step == step and found.state["turn"] == turn, found
        print("stops", stop)
"""

FULL_DISK = """
    import resource, sys
    from pathlib import Path
    import numpy as np
    from rss_rl.errors import CheckpointError
    from rss_rl.runs.checkpoint import save_checkpoint

    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        save_checkpoint(Path(sys.argv[1]), 2, {"a": np.zeros(100_000)}, {}, keep_last=1)
    except CheckpointError as error:
        print(error)
"""


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_kill_at_any_moment_leaves_a_sound_checkpoint(tmp_path: Path) -> None:
    step, delays = 0, random.Random(7)
    for _ in range(8):
        process = child(SAVE_LOOP, tmp_path, step + 1)
        assert process.stdout is not None
        with process, process.stdout:
            assert process.stdout.readline() == f"{step + 1}\n"
            time.sleep(delays.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        found = load_checkpoint(tmp_path)
        assert found.step > step
        assert found.warnings == ()
        assert (found.tensors["a"] == 2 * found.step + found.state["turn"]).all()
        step = found.step


def test_a_stop_before_any_file_operation_leaves_a_sound_checkpoint(tmp_path: Path) -> None:
    process = child(EVERY_STOP, tmp_path)
    output = process.communicate()[0]
    assert process.returncode == 0
    first, second = (int(line.split()[1]) for line in output.splitlines())
    assert min(first, second) > 10  # it did stop all along the way


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"a": np.zeros(3)}, {}, keep_last=1)
    process = child(FULL_DISK, tmp_path)
    output = process.communicate()[0]
    assert process.returncode == 0
    assert "could not be written" in output
    assert "free disk space" in output
    assert checkpoint_steps(tmp_path) == [1]
    assert load_checkpoint(tmp_path).step == 1
    assert not list((tmp_path / "checkpoints").glob(".tmp-*"))
