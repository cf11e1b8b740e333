"""Hostile checkpoint files: an error with a remedy, never another exception."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rss_rl.errors import CheckpointError
from rss_rl.runs.checkpoint import load_checkpoint, save_checkpoint, step_directory


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a checkpoint, as a template."""
    run = tmp_path_factory.mktemp("run")
    return save_checkpoint(run, 1, {"a": np.arange(4)}, {"k": [1, "x"]}, keep_last=1)


def tensors_of(checkpoint: Path) -> Path:
    (path,) = checkpoint.glob("tensors-*.safetensors")
    return path


def forge(run: Path, sound: Path, tensors: bytes, **change: Any) -> None:
    """A checkpoint like a sound one, whose checksums are right, whatever it holds."""
    target = step_directory(run, 1)
    target.mkdir(parents=True, exist_ok=True)
    (target / tensors_of(sound).name).write_bytes(tensors)
    record = json.loads((sound / "state.json").read_text())
    digest = {"tensors_sha256": hashlib.sha256(tensors).hexdigest()}
    (target / "state.json").write_text(json.dumps({**record, **digest, **change}))


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
    forge(tmp_path, sound, tensors)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path, 1)
    assert caught.value.remedy
    assert tensors_of(sound).name in caught.value.where


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
    tensors = tensors_of(sound).read_bytes()
    forge(tmp_path, sound, tensors, **change)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path, 1)
    assert caught.value.remedy


def test_a_huge_json_file_is_not_read(tmp_path: Path) -> None:
    step_directory(tmp_path, 1).mkdir(parents=True)
    with (step_directory(tmp_path, 1) / "state.json").open("wb") as file:
        file.truncate(2**33)
    with pytest.raises(CheckpointError, match="larger than"):
        load_checkpoint(tmp_path, 1)


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
