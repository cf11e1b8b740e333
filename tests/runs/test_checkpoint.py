"""Checkpoints come back to the bit, old ones go, and what goes wrong on disk is told."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rss_rl.errors import CheckpointError
from rss_rl.runs.checkpoint import (
    checkpoint_steps,
    load_checkpoint,
    mark_checkpoint,
    save_checkpoint,
)

TENSORS = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array(3)}


def save(run: Path, *steps: int, keep_last: int = 3) -> None:
    for step in steps:
        tensors = {**TENSORS, "count": np.array(step)}
        save_checkpoint(run, step, tensors, {"step": step}, keep_last=keep_last)


def damage(run: Path, step: int) -> None:
    """Flip one bit of the last tensor."""
    (path,) = (run / "checkpoints" / f"step-{step:06d}").glob("tensors-*")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


@given(
    array=hnp.arrays(
        dtype=st.sampled_from(["?", "u1", "i2", "i4", "i8", "u8", "f2", "f4", "f8", ">f4"]),
        shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_arrays_come_back_to_the_bit(
    array: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path_factory.mktemp("run")
    save_checkpoint(run, 1, {"a": array, "transposed": array.T}, {}, keep_last=1)
    found = load_checkpoint(run).tensors
    for name, expected in (("a", array), ("transposed", array.T)):
        assert found[name].shape == expected.shape
        assert found[name].dtype == expected.dtype.newbyteorder("=")
        assert found[name].flags.writeable
        np.testing.assert_array_equal(found[name], expected)


def test_torch_tensors_come_back_to_the_bit(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.randn(3, 4, dtype=torch.float32))
    tensors = {
        "parameter": parameter,
        "transposed": parameter.T,
        "scalar": torch.tensor(7.0),
        "rng": torch.get_rng_state(),
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
    }
    save_checkpoint(tmp_path, 5, tensors, {}, keep_last=1)
    found = load_checkpoint(tmp_path)
    for name, tensor in tensors.items():
        saved = found.tensors[name]
        assert saved.shape == tuple(tensor.shape), name
        assert str(saved.dtype) == str(tensor.dtype).removeprefix("torch."), name
        assert saved.tobytes() == tensor.detach().numpy().tobytes(), name


@pytest.mark.parametrize(
    "tensor", [torch.zeros(2, dtype=torch.bfloat16), np.zeros(2, complex), np.array(["a"])]
)
def test_a_dtype_that_would_not_come_back_is_refused(tmp_path: Path, tensor: object) -> None:
    with pytest.raises(CheckpointError, match="'odd'.*Convert it"):
        save_checkpoint(tmp_path, 1, {"odd": tensor}, {}, keep_last=1)
    assert list((tmp_path / "checkpoints").iterdir()) == []


@pytest.mark.parametrize(
    "state",
    [{"a": {"b": [1, float("nan")]}}, {"a": float("inf")}, {"a": (1, 2)}, {1: 2}, {"a": TENSORS}],
)
def test_a_state_that_would_not_come_back_equal_is_refused(
    tmp_path: Path, state: dict[str, object]
) -> None:
    with pytest.raises(CheckpointError, match="would not read back equal"):
        save_checkpoint(tmp_path, 1, TENSORS, state, keep_last=1)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Surrogates included: a token of a user's text may hold half of one.
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(state=st.dictionaries(st.text(), json_values, max_size=3))
def test_states_come_back_equal(
    state: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path_factory.mktemp("run")
    save_checkpoint(run, 0, {}, state, keep_last=1)
    assert load_checkpoint(run).state == state


def test_the_last_and_the_marked_stay(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3)
    mark_checkpoint(tmp_path, 1)
    mark_checkpoint(tmp_path, 2, "warm_up")
    save(tmp_path, 4, 5, keep_last=2)
    assert checkpoint_steps(tmp_path) == [1, 2, 4, 5]
    mark_checkpoint(tmp_path, 5)
    save(tmp_path, 6, keep_last=2)
    assert checkpoint_steps(tmp_path) == [2, 5, 6]
    assert load_checkpoint(tmp_path).step == 6
    assert load_checkpoint(tmp_path, "best").state == {"step": 5}
    assert load_checkpoint(tmp_path, "warm_up").step == 2
    assert load_checkpoint(tmp_path, 5).tensors["count"] == 5


def test_steps_from_before_a_resume_go(tmp_path: Path) -> None:
    save(tmp_path, 10, 20, 30)
    mark_checkpoint(tmp_path, 30)
    save(tmp_path, 11)
    assert checkpoint_steps(tmp_path) == [10, 11, 30]
    assert load_checkpoint(tmp_path).step == 11


def test_a_step_saved_twice_holds_the_second(tmp_path: Path) -> None:
    for value in (1.0, 2.0, 2.0):
        tensors = {"a": np.array(value)}
        path = save_checkpoint(tmp_path, 7, tensors, {"value": value}, keep_last=1)
        found = load_checkpoint(tmp_path)
        assert found.state == {"value": value}
        assert found.tensors["a"] == value
        assert len(list(path.iterdir())) == 2


def test_a_damaged_latest_is_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 1, 2, 3)
    damage(tmp_path, 3)
    shutil.rmtree(tmp_path / "checkpoints" / "step-000002")
    with caplog.at_level(logging.WARNING, "rss_rl.checkpoint"):
        found = load_checkpoint(tmp_path)
    assert found.step == 1
    assert len(found.warnings) == 1
    assert "step 3" in found.warnings[0]
    assert "SHA-256" in caplog.text


def test_a_damaged_checkpoint_asked_for_by_name_is_an_error(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    mark_checkpoint(tmp_path, 2)
    damage(tmp_path, 2)
    for which in ("best", 2):
        with pytest.raises(CheckpointError, match="SHA-256"):
            load_checkpoint(tmp_path, which)
    damage(tmp_path, 1)
    with pytest.raises(CheckpointError, match="no sound checkpoint.*step 2.*step 1") as error:
        load_checkpoint(tmp_path)
    # One remedy, at the end: another checkpoint of the run is none.
    assert "hoose another" not in str(error.value)
    assert str(error.value).count("start the run again") == 1


def test_a_missing_latest_pointer_is_made_up_for(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "checkpoints" / "LATEST").unlink()
    found = load_checkpoint(tmp_path)
    assert found.step == 2
    assert "LATEST" in found.warnings[0]


def test_leftovers_of_a_killed_save_go(tmp_path: Path) -> None:
    save(tmp_path, 1)
    leftover = tmp_path / "checkpoints" / ".tmp-step-000002-1"
    leftover.mkdir()
    (leftover / "tensors").write_bytes(b"half")
    (tmp_path / "checkpoints" / ".tmp-LATEST-1").write_text("step-")
    assert checkpoint_steps(tmp_path) == [1]
    save(tmp_path, 2)
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"step-000001", "step-000002", "LATEST"}
