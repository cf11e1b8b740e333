"""What `rss-rl submit` would send: its command, and the code."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rss_rl.cli.main import app
from rss_rl.cli.submit import entrypoint
from rss_rl.cluster import package as code_package
from rss_rl.cluster.package import pack_code
from rss_rl.errors import ClusterError

START = ["exec", "python", "-m", "rss_rl.cli.main", "train", "config.yaml", "--resume"]


def test_a_shared_path_is_the_run_directory() -> None:
    assert shlex.split(entrypoint("job", "/nfs/my runs/a")) == [
        *START,
        *("--run-dir", "/nfs/my runs/a"),
    ]


def test_train_understands_its_command() -> None:
    words = shlex.split(entrypoint("job", "s3://bucket/my run", take_over=True))
    assert words[: len(START)] == START
    group: Any = typer.main.get_command(app)
    with group.commands["train"].make_context("train", words[5:]) as context:
        given = context.params
    assert (given["config"], given["resume"], given["take_over"]) == ("config.yaml", True, True)
    assert (given["run_dir"], given["storage"]) == (Path("runs/job"), "s3://bucket/my run")


def test_an_open_cluster_is_named_to_the_training_too() -> None:
    assert entrypoint("job", "/nfs/a", insecure=True).endswith(" --insecure")


def test_only_code_is_packed(tmp_path: Path, repository: Path) -> None:
    packed = pack_code(tmp_path / "code", "data: here\n")
    files = {str(path.relative_to(packed.root)) for path in packed.root.rglob("*.*")}
    wanted = {
        "rss_rl/cli/main.py",
        "rss_rl/envs/rewards.py",
        "rss_rl/learners/optim.py",
        "config.yaml",
    }
    assert wanted | {"rss_rl/configs/sick.yaml", "rss_rl/py.typed"} <= files
    assert {"rss_rl/ops/kernels/attention.cpp", "rss_rl/pages/look.css"} <= files
    kinds = {".cpp", ".css", ".h", ".html", ".js", ".py", ".typed", ".yaml"}
    code = {name for name in files if ".dist-info" not in name}
    assert {Path(name).suffix for name in code} == kinds
    (points,) = packed.root.glob("rss_rl-*.dist-info/entry_points.txt")  # so components are found
    assert "rss-rl = rss_rl.cli.main:app" in points.read_text()
    assert not any(name.startswith("tests") for name in files)
    assert (packed.root / "config.yaml").read_text() == "data: here\n"
    assert (packed.files, packed.size < 2_400_000) == (len(files), True)


def test_absurd_sizes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_package, "LARGEST_PACKAGE", 100_000)
    with pytest.raises(
        ClusterError, match=r"the code to send has \d MB; its largest file is \S+\.(py|cpp)"
    ):
        pack_code(tmp_path / "code", "")


def test_a_dry_run_sends_nothing_and_imports_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rss_rl.cluster.jobs", None)
    arguments = ["submit", "demo", "data=s3://b/d", "seed=7", "--storage", "s3://b/r", "--dry-run"]
    result = CliRunner().invoke(app, [*arguments, "--pip", "s3fs", "--gpus", "1"])
    assert result.exit_code == 0, result.output
    for part in ("seed: 7", "s3://b/d", '"s3fs"', '"entrypoint_num_gpus": 1', " files, ", " MB"):
        assert part in result.stdout


def test_a_path_of_this_machine_is_refused() -> None:
    arguments = ["submit", "demo", "data=s3://b/d", "--storage", "s3://b/r", "--dry-run"]
    other = ["policy.from_run=runs/films", "evaluation.all_tokens=false"]
    refused = CliRunner().invoke(app, [*arguments, *other])
    assert "policy.from_run is a path on this machine" in refused.stderr
    shared = CliRunner().invoke(app, [*arguments, *other, "--shared-filesystem"])
    assert f"from_run: {Path('runs/films').absolute()}" in shared.stdout


def test_the_folder_of_a_transformer_is_refused(tmp_path: Path) -> None:
    arguments = ["submit", "transformer/sentences", "data=s3://b/d", "--storage", "s3://b/r"]
    given = [*arguments, "--dry-run", f"model.encoder.options.pretrained={tmp_path}"]
    refused = CliRunner().invoke(app, given)
    assert "the folder of a pretrained model is a path on this machine" in refused.stderr
    assert "its name on the hub" in refused.stderr
    shared = CliRunner().invoke(app, [*given, "--shared-filesystem"])
    assert f"pretrained: {tmp_path}" in shared.stdout
    named = CliRunner().invoke(app, [*arguments, "--dry-run"])
    assert "pretrained: sentence-transformers/all-MiniLM-L6-v2" in named.stdout


def test_a_run_in_one_process_is_said_to_be_one() -> None:
    arguments = ["submit", "demo", "data=s3://b/d", "--storage", "s3://b/r", "--dry-run"]
    alone = CliRunner().invoke(app, [*arguments, "sampler.backend=local"])
    assert "one process on one node of the cluster; add sampler.backend=ray" in alone.output
    many = CliRunner().invoke(app, [*arguments, "sampler.backend=ray"])
    assert many.exit_code == 0, many.output
    assert "one process" not in many.output


def test_nothing_is_taken_over_without_a_writer() -> None:
    shared = ["--storage", "/nfs/r", "--shared-filesystem", "--take-over", "--dry-run"]
    for arguments in (["submit", "demo", *shared], ["train", "demo", "--take-over"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert "--take-over is about the writer of a" in result.stderr
