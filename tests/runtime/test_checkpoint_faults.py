"""Kills, full disks and hostile files: the last sound checkpoint stays, the rest is an error."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.errors import CheckpointError
from rss_rl.runtime.checkpoint import checkpoint_steps, load_checkpoint, save_checkpoint

SAVE_LOOP = """
    import sys
    from pathlib import Path
    import numpy as np
    from rss_rl.runtime.checkpoint import save_checkpoint

    # Each step is saved twice with another state, as after Ctrl-C just behind a checkpoint.
    print("ready", flush=True)
    for step in range(int(sys.argv[2]), 100_000):
        for turn in (0, 1):
            tensors = {"a": np.full(50_000, 2 * step + turn, np.int64)}
            save_checkpoint(Path(sys.argv[1]), step, tensors, {"turn": turn}, keep_last=1)
"""

EVERY_STOP = """
    import os, sys
    from pathlib import Path
    import numpy as np
    from rss_rl.runtime.checkpoint import load_checkpoint, save_checkpoint

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
    from rss_rl.runtime.checkpoint import save_checkpoint

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
    step, delays = 1, random.Random(7)
    for _ in range(8):
        process = child(SAVE_LOOP, tmp_path, step)
        assert process.stdout is not None
        with process, process.stdout:
            assert process.stdout.readline() == "ready\n"
            time.sleep(delays.uniform(0.05, 0.15))
            process.send_signal(signal.SIGKILL)
        if not checkpoint_steps(tmp_path):  # killed before the first was there: nothing is lost
            continue
        found = load_checkpoint(tmp_path)
        assert found.step >= step
        assert found.warnings == ()
        assert (found.tensors["a"] == 2 * found.step + found.state["turn"]).all()
        step = found.step
    assert step > 1


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


@pytest.mark.parametrize("call", ["rename", "replace", "fsync"])
def test_a_refusing_disk_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    save_checkpoint(tmp_path, 1, {"a": np.zeros(3)}, {}, keep_last=1)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(CheckpointError, match="No space left on device.*intact"):
            save_checkpoint(tmp_path, 2, {"a": np.ones(3)}, {}, keep_last=1)
    found = load_checkpoint(tmp_path)
    assert found.tensors["a"].tolist() == [found.step - 1.0] * 3


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a checkpoint, as a template."""
    run = tmp_path_factory.mktemp("run")
    return save_checkpoint(run, 1, {"a": np.arange(4)}, {"k": [1, "x"]}, keep_last=1)


def forge(target: Path, record: dict[str, Any], tensors: bytes) -> Path:
    """A checkpoint whose checksums are right, whatever it holds."""
    target.mkdir(parents=True, exist_ok=True)
    (target / "tensors.safetensors").write_bytes(tensors)
    (target / "state.json").write_text(
        json.dumps({**record, "tensors_sha256": hashlib.sha256(tensors).hexdigest()})
    )
    return target


def header(text: str, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text.encode()


@pytest.mark.parametrize(
    "tensors",
    [
        b"",
        b"\x08",
        header("{}", 2**40),
        header("{}", 2**63),
        header("{not json"),
        header("[1, 2]"),
        header('{"a": {"dtype": "F32", "shape": [1000000], "data_offsets": [0, 4000000]}}'),
        header('{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}}') + b"0" * 4,
        header('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}'),
        header('{"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}') + b"0" * 4,
        header('{"a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}') + b"0" * 4,
        header('{"a": {"dtype": "OBJECT", "shape": [4], "data_offsets": [0, 4]}}') + b"0" * 4,
        header('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}') + b"0" * 9,
        header('{"a": {"dtype": "U8", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}'),
    ],
)
def test_hostile_tensor_files_are_errors(tmp_path: Path, sound: Path, tensors: bytes) -> None:
    record = json.loads((sound / "state.json").read_text())
    path = forge(tmp_path / "step-000001", record, tensors)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert caught.value.remedy
    assert "tensors.safetensors" in caught.value.where


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"schema_version": True},
        {"schema_version": "1"},
        {"step": -1},
        {"step": 1.5},
        {"state": []},
        {"state": {"k": [1, "y"]}},
        {"state_sha256": 5},
        {"tensors_file": "../../elsewhere.safetensors"},
        {"tensors_file": "/etc/hostname"},
        {"tensors_file": "tensors-0123456789abcdef.safetensors"},
        {"tensors_file": None},
    ],
)
def test_hostile_records_are_errors(tmp_path: Path, sound: Path, change: dict[str, Any]) -> None:
    record = json.loads((sound / "state.json").read_text())
    path = tmp_path / "step-000001"
    forge(path, {**record, **change}, (sound / "tensors.safetensors").read_bytes())
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '{"state": NaN}', '{"a": Infinity}', "[" * 100_000, '{"step": 1', "\ud800"],
)
def test_hostile_json_is_an_error(tmp_path: Path, sound: Path, text: str) -> None:
    (tmp_path / "tensors.safetensors").write_bytes((sound / "tensors.safetensors").read_bytes())
    (tmp_path / "state.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(CheckpointError, match=r"state\.json"):
        load_checkpoint(tmp_path)


def test_an_overflowing_number_is_an_error(tmp_path: Path, sound: Path) -> None:
    """1e999 is infinity to the JSON reader, though it is no constant."""
    text = (sound / "state.json").read_text().replace('{"k": [1,', '{"k": [1e999,')
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(CheckpointError, match="is inf"):
        load_checkpoint(tmp_path)


def test_deep_states_are_errors_at_both_ends(tmp_path: Path, sound: Path) -> None:
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(CheckpointError, match="nested too deeply"):
        save_checkpoint(tmp_path, 1, {}, {"deep": deep}, keep_last=1)
    record = (sound / "state.json").read_text().replace('[1, "x"]', "[" * 900 + "]" * 900)
    (tmp_path / "state.json").write_text(record)
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path)


def test_a_huge_json_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "state.json").open("wb") as file:
        file.truncate(2**33)
    with pytest.raises(CheckpointError, match="larger than"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "pointer",
    [
        "../../elsewhere",
        "/etc",
        "step-000001/../..",
        "",
        "step-1",
        "step-000001\nx",
        "\0",
        "x" * 99,
    ],
)
@pytest.mark.parametrize("name", ["LATEST", "BEST"])
def test_hostile_pointers_are_errors(tmp_path: Path, pointer: str, name: str) -> None:
    save_checkpoint(tmp_path, 1, {}, {}, keep_last=1)
    (tmp_path / "checkpoints" / name).write_text(pointer)
    with pytest.raises(CheckpointError, match=r"does not name a checkpoint.*Steps present: 1"):
        load_checkpoint(tmp_path, name.lower())


@pytest.mark.parametrize("which", ["../best", "a/b", "", "best\n", "."])
def test_hostile_names_are_errors(tmp_path: Path, which: str) -> None:
    save_checkpoint(tmp_path, 1, {}, {}, keep_last=1)
    with pytest.raises(CheckpointError, match="cannot be the name"):
        load_checkpoint(tmp_path, which)


@given(data=st.data())
def test_any_damage_is_an_error_and_nothing_else(
    data: st.DataObject, sound: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bytes changed, cut off or added in either file: found, and never another exception."""
    path = tmp_path_factory.mktemp("fuzz")
    for file in sound.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    victim = path / data.draw(st.sampled_from(["state.json", "tensors.safetensors"]))
    content = bytearray(victim.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "add"]))
    if kind == "flip":
        content[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del content[place:]
    else:
        content[place:place] = data.draw(st.binary(min_size=1, max_size=8))
    victim.write_bytes(bytes(content))
    try:
        found = load_checkpoint(path)
    except CheckpointError as error:
        assert error.remedy
    else:  # a change of the JSON text that is no change of its meaning, such as a space
        assert victim.name == "state.json"
        assert found.state == {"k": [1, "x"]}
        assert found.tensors["a"].tolist() == [0, 1, 2, 3]
