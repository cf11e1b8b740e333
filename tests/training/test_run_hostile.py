"""A hostile run directory: links, pipes, locks, and states that were made for another program."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rss_rl.config import RunConfig
from rss_rl.errors import CheckpointError, ConfigError, RssError
from rss_rl.runs.checkpoint import load_checkpoint, save_checkpoint
from rss_rl.runs.run_directory import LOCK_FILE, RunDirectory, lock_holder
from rss_rl.training.run import train
from rss_rl.training.trained_models import open_models

pytestmark = pytest.mark.timeout(60)


def saved(run: Path) -> Path:
    return save_checkpoint(run, 1, {"a": np.arange(4)}, {"k": 1}, keep_last=1)


def found(checkpoint: Path, name: str) -> Path:
    (path,) = checkpoint.glob(name) if name != "." else [checkpoint]
    return path


class TestLinksAndPipes:
    @pytest.mark.parametrize("name", ["state.json", "tensors-*", "."])
    def test_a_link_is_not_read(self, tmp_path: Path, name: str) -> None:
        path = found(saved(tmp_path / "run"), name)
        shutil.move(path, tmp_path / "outside")
        path.symlink_to(tmp_path / "outside")
        for place, which in ((tmp_path / "run", 1), (tmp_path / "run", "latest")):
            with pytest.raises(CheckpointError, match="a link, or not a plain file"):
                load_checkpoint(place, which)

    @pytest.mark.parametrize("name", ["state.json", "tensors-*"])
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path, name: str) -> None:
        path = found(saved(tmp_path / "run"), name)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(CheckpointError, match="not a plain file"):
            load_checkpoint(tmp_path / "run", 1)

    @pytest.mark.parametrize("kind", ["pipe", "link"])
    def test_pointers_are_plain_files(self, tmp_path: Path, kind: str) -> None:
        saved(tmp_path / "run")
        pointer = tmp_path / "run" / "checkpoints" / "BEST"
        (tmp_path / "outside").write_text("step-000001\n")
        os.mkfifo(pointer) if kind == "pipe" else pointer.symlink_to(tmp_path / "outside")
        with pytest.raises(CheckpointError, match="not a plain file"):
            load_checkpoint(tmp_path / "run", "best")

    @pytest.mark.parametrize("name", ["config.json", "report.json"])
    def test_json_is_read_from_plain_files(self, tmp_path: Path, name: str) -> None:
        with RunDirectory.create(tmp_path / "run", {"seed": 1}) as run:
            (run.path / name).unlink(missing_ok=True)
            os.mkfifo(run.path / name)
            with pytest.raises(CheckpointError, match="not a plain file"):
                RunDirectory.open(run.path).read_report()

    def test_pruning_never_follows_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "precious").write_text("mine")
        saved(tmp_path / "run")
        (tmp_path / "run" / "checkpoints" / "step-000000").symlink_to(tmp_path / "outside")
        (tmp_path / "run" / "checkpoints" / ".tmp-x").symlink_to(tmp_path / "outside")
        save_checkpoint(tmp_path / "run", 2, {}, {}, keep_last=1)
        assert (tmp_path / "outside" / "precious").read_text() == "mine"


class TestLock:
    @pytest.mark.parametrize("content", [b"\xff\xfe\0", b"\x1b[2J", b"x" * 10**6, b""])
    def test_whatever_it_says(self, tmp_path: Path, content: bytes) -> None:
        with RunDirectory.create(tmp_path, {"seed": 1}):
            (tmp_path / LOCK_FILE).write_bytes(content)
            with pytest.raises(CheckpointError, match="is training there") as caught:
                RunDirectory.open(tmp_path, lock=True)
            assert str(caught.value).isprintable()
            assert len(str(caught.value)) < 600
            holder = lock_holder(tmp_path)
            assert holder is not None
            assert holder.isprintable()
        assert lock_holder(tmp_path) is None
        RunDirectory.open(tmp_path, lock=True).close()

    def test_a_link_is_not_emptied(self, tmp_path: Path) -> None:
        with RunDirectory.create(tmp_path / "run", {"seed": 1}):
            pass
        (tmp_path / "precious").write_text("mine")
        (tmp_path / "run" / LOCK_FILE).unlink()
        (tmp_path / "run" / LOCK_FILE).symlink_to(tmp_path / "precious")
        with pytest.raises(CheckpointError, match="cannot be used"):
            RunDirectory.open(tmp_path / "run", lock=True)
        assert (tmp_path / "precious").read_text() == "mine"

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        with RunDirectory.create(tmp_path / "run", {"seed": 1}):
            pass
        (tmp_path / "run" / LOCK_FILE).unlink()
        os.mkfifo(tmp_path / "run" / LOCK_FILE)
        with pytest.raises(CheckpointError, match="not a plain file"):
            RunDirectory.open(tmp_path / "run", lock=True)


@pytest.fixture(scope="module")
def stopped(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its ninth update, as a template."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    asked = iter([False] * 8 + [True])
    list(train(tiny_config, path, stop=lambda: next(asked)))
    return path


def forge(
    run: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray[Any, Any]]], object]
) -> None:
    """Rewrite the newest checkpoint with right checksums."""
    found = load_checkpoint(run)
    change(found.state, found.tensors)
    shutil.rmtree(found.path)
    save_checkpoint(run, found.step, found.tensors, found.state, keep_last=9)


def resumed(config: RunConfig, template: Path, place: Path, change: Callable[..., object]) -> Path:
    shutil.copytree(template, place)
    forge(place, change)
    list(train(config, place, resume=True))
    return place


STATES: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": lambda s: s.clear(),
    "no session": lambda s: s.pop("session"),
    "a session of another kind": lambda s: s.update(session=[1]),
    "an absurd update": lambda s: s["session"].update(update=10**30),
    "a negative update": lambda s: s["session"].update(update=-1),
    "an update as text": lambda s: s["session"].update(update="9"),
    "a phase beyond the last": lambda s: s["session"]["schedule"].update(index=7),
    "a negative phase": lambda s: s["session"]["schedule"].update(index=-2),
    "steps as text": lambda s: s["session"]["schedule"].update(steps="x"),
    "best as text": lambda s: s["session"]["schedule"].update(best="x"),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_does_not_fit(
    name: str, tiny_config: RunConfig, stopped: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        resumed(tiny_config, stopped, tmp_path / "run", lambda s, _: STATES[name](s))
    assert caught.value.remedy


def first(tensors: dict[str, np.ndarray[Any, Any]], prefix: str) -> str:
    return min(name for name in tensors if name.startswith(prefix) and tensors[name].ndim == 2)


TENSORS: dict[str, Callable[[dict[str, np.ndarray[Any, Any]]], object]] = {
    "none": lambda t: t.clear(),
    "one is missing": lambda t: t.pop(first(t, "classifier/")),
    "one too many": lambda t: t.update({"policy/../../x": np.zeros(1)}),
    "another shape": lambda t: t.update({first(t, "policy/"): np.zeros((1, 1), np.float32)}),
    "another dtype": lambda t: t.update({(n := first(t, "policy/")): t[n].astype(np.float64)}),
    "bits for numbers": lambda t: t.update({(n := first(t, "classifier/")): t[n] > 0}),
    "an optimizer's shape": lambda t: t.update({first(t, "optimizer/"): np.zeros((1, 1))}),
    "an optimizer's parameter": lambda t: t.update({"optimizer/policy/99999/exp_avg": np.ones(1)}),
    "an optimizer's quantity": lambda t: t.pop(
        min(name for name in t if name.startswith("optimizer/") and name.endswith("exp_avg"))
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_fit(
    name: str, tiny_config: RunConfig, stopped: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        resumed(tiny_config, stopped, tmp_path / "run", lambda _, t: TENSORS[name](t))
    assert caught.value.remedy
    if not name.startswith("an optimizer"):
        with pytest.raises(CheckpointError):
            open_models(tmp_path / "run", "latest")


def test_a_state_under_another_step(stopped: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    shutil.move(
        run / "checkpoints" / "step-000009", run / "checkpoints" / "step-999999999999999999"
    )
    with pytest.raises(CheckpointError, match="its state is of step 9"):
        load_checkpoint(run, 999999999999999999)


@settings(max_examples=60)
@given(data=st.data())
def test_any_damage_of_config_json_is_an_error_or_harmless(
    data: st.DataObject, stopped: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path_factory.getbasetemp() / "config-fuzz"
    run.mkdir(exist_ok=True)
    content = bytearray((stopped / "config.json").read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        content[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
    (run / "config.json").write_bytes(bytes(content))
    try:
        open_models(run)
    except RssError as error:
        assert isinstance(error, CheckpointError | ConfigError) or "inputs" in error.where


OVERLAP = (
    '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
    '"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}'
)
GAP = (
    '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
    '"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}'
)
DEEP = '{"a":' + "[" * 5000 + "]" * 5000 + "}"
HUGE = '{"a":{"dtype":"U8","shape":[' + "9" * 5000 + '],"data_offsets":[0,6]}}'


@pytest.mark.parametrize(
    "header", [OVERLAP, GAP, DEEP, HUGE], ids=["overlap", "gap", "deep", "huge"]
)
def test_offsets_that_lie(header: str, tmp_path: Path) -> None:
    path = saved(tmp_path)
    tensors = len(header).to_bytes(8, "little") + header.encode() + b"123456"
    found(path, "tensors-*").write_bytes(tensors)
    record = json.loads((path / "state.json").read_text())
    record["tensors_sha256"] = hashlib.sha256(tensors).hexdigest()
    (path / "state.json").write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match=r"tensors-\w+\.safetensors"):
        load_checkpoint(tmp_path)
