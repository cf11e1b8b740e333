"""What `rss-rl submit` would send: its command, and the code."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from invoking import invoke

from rss_rl.api.submit import entrypoint
from rss_rl.cli.main import COMMANDS
from rss_rl.cluster.submission import pack_code

START = ["exec", "python", "-m", "rss_rl.cli.main", "train", "config.yaml", "--resume"]


def test_a_shared_path_is_the_run_directory() -> None:
    assert shlex.split(entrypoint("job", "/nfs/my runs/a")) == [
        *START,
        *("--out", "/nfs/my runs/a"),
    ]


def test_train_understands_its_command() -> None:
    words = shlex.split(entrypoint("job", "s3://bucket/my run", take_over=True))
    assert words[: len(START)] == START
    given = COMMANDS.parse_args(words[4:])[1].arguments
    assert (given["config"], given["resume"], given["take_over"]) == ("config.yaml", True, True)
    assert (given["out"], given["storage"]) == (Path("runs/job"), "s3://bucket/my run")


def test_what_is_packed(tmp_path: Path) -> None:
    size = pack_code(tmp_path / "code", "data: here\n")
    files = {path.relative_to(tmp_path / "code").as_posix() for path in tmp_path.rglob("*.*")}
    assert {
        "rss_rl/cli/main.py",
        "rss_rl/envs/rewards.py",
        "rss_rl/learners/optim.py",
        "rss_rl/ops/kernels/attention.cpp",
        "rss_rl/pages/look.css",
        "rss_rl/configs/sick.yaml",
        "rss_rl/py.typed",
        "config.yaml",
    } <= files
    (points,) = tmp_path.glob("code/rss_rl-*.dist-info/entry_points.txt")  # of components
    assert "rss-rl = rss_rl.cli.main:app" in points.read_text()
    assert not any(name.startswith("tests") or "__pycache__" in name for name in files)
    assert (tmp_path / "code" / "config.yaml").read_text() == "data: here\n"
    assert size < 4_000_000


def test_a_dry_run_sends_nothing_and_imports_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # which the job is told, too
    arguments = ["submit", "demo", "data=s3://b/d", "seed=7", "--storage", "s3://b/r", "--dry-run"]
    result = invoke([*arguments, "--pip", "s3fs", "--gpus", "1"])
    assert result.exit_code == 0, result.output
    for part in ("seed: 7", "s3://b/d", '"s3fs"', '"entrypoint_num_gpus": 1', '"disabled"', " MB"):
        assert part in result.stdout


def test_a_path_of_this_machine_is_refused() -> None:
    arguments = ["submit", "demo", "data=s3://b/d", "--storage", "s3://b/r", "--dry-run"]
    other = ["policy.from_run=runs/films", "evaluation.all_tokens=false"]
    refused = invoke([*arguments, *other])
    assert "policy.from_run is a path on this machine" in refused.stderr
    shared = invoke([*arguments, *other, "--shared-filesystem"])
    assert f"from_run: {Path('runs/films').absolute()}" in shared.stdout


def test_data_that_are_not_there_are_refused(tmp_path: Path) -> None:
    arguments = ["--storage", "/nfs/run", "--shared-filesystem", "--address", "http://localhost:9"]
    refused = invoke(["submit", "demo", f"data={tmp_path}", *arguments])
    assert f"{tmp_path}: there are no prepared data" in refused.stderr
    (tmp_path / "manifest.json").write_text("{}")
    passed = invoke(["submit", "demo", f"data={tmp_path}", *arguments])
    assert "no Ray cluster answered" in passed.stderr
    unknown = invoke(["submit", "demo", "data=nosuch://b/d", *arguments])
    assert "whether the data are there is not known" in unknown.stdout


def test_the_folder_of_a_transformer_is_refused(tmp_path: Path) -> None:
    arguments = ["submit", "transformer/sentences", "data=s3://b/d", "--storage", "s3://b/r"]
    given = [*arguments, "--dry-run", f"model.encoder.options.pretrained={tmp_path}"]
    refused = invoke(given)
    assert "the folder of a pretrained model is a path on this machine" in refused.stderr
    assert "its name on the hub" in refused.stderr
    shared = invoke([*given, "--shared-filesystem"])
    assert f"pretrained: {tmp_path}" in shared.stdout
    named = invoke([*arguments, "--dry-run"])
    assert "pretrained: sentence-transformers/all-MiniLM-L6-v2" in named.stdout


def test_a_run_in_one_process_is_said_to_be_one() -> None:
    arguments = ["submit", "demo", "data=s3://b/d", "--storage", "s3://b/r", "--dry-run"]
    alone = invoke([*arguments, "sampler.backend=local"])
    assert "one process on one node of the cluster; add sampler.backend=ray" in alone.output
    many = invoke([*arguments, "sampler.backend=ray"])
    assert many.exit_code == 0, many.output
    assert "one process" not in many.output
