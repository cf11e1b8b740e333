"""`rss-rl submit`: train on a Ray cluster from a machine outside it."""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.job import Address, finish, watch
from rss_rl.cli.options import console, option
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from rss_rl.cluster.jobs import JobBoard
    from rss_rl.cluster.package import PackedCode
    from rss_rl.config import RunConfig

EPILOG = """
Examples:

`rss-rl submit sick data=s3://b/d sampler.backend=ray --storage s3://b/r --address http://HEAD:8265`

`rss-rl submit sick data=/nfs/d sampler.backend=ray --storage /nfs/r --shared-filesystem --detach`

The cluster's nodes need Python with torch and the other dependencies; rss-rl itself is sent along.
After a failure or a stop, the same command resumes from the last checkpoint in the storage.
`rss-rl job` shows, watches and stops what was submitted.
"""


_ONE_PROCESS = (
    "Note: with sampler.backend=local the whole run is one process on one node of the cluster;"
    " add sampler.backend=ray to sample on many"
)


def submit(
    config: options.ConfigName,
    storage: Annotated[
        str,
        option(
            "--storage URI",
            "Where the run is kept: s3://bucket/run, or a path with --shared-filesystem.",
        ),
    ],
    overrides: options.Overrides = None,
    address: Address = None,
    shared_filesystem: Annotated[
        bool,
        option("--shared-filesystem", "Say that local paths are the same files on every node."),
    ] = False,
    name: Annotated[
        str | None, option("--name", "Name of the job. Default: the configuration's.")
    ] = None,
    follow: Annotated[
        bool, option("--follow/--detach", "Show what the job prints until it ends.")
    ] = True,
    pip: Annotated[
        list[str] | None, option("--pip REQUIREMENT", "Package to install for the job; repeatable.")
    ] = None,
    cpus: Annotated[float, option("--cpus", "CPUs for the learner's process.", min=0)] = 1,
    gpus: Annotated[float, option("--gpus", "GPUs for the learner's process.", min=0)] = 0,
    take_over: options.TakeOver = False,
    insecure: options.Insecure = False,
    dry_run: options.DryRun = False,
) -> None:
    """Train on a Ray cluster: sends the code and the resolved configuration as a job."""
    from rss_rl.cli.config import documented_yaml
    from rss_rl.cluster.package import pack_code
    from rss_rl.config import plugins_named

    run, short = _resolve_config(config, overrides or [], shared_filesystem)
    storage = _resolve_storage(storage, shared_filesystem, take_over)
    job = f"{name or short}-{time.strftime('%Y%m%d-%H%M%S')}"
    plugins = any(plugins_named(run))
    command = entrypoint(
        job, storage, take_over=take_over, insecure=insecure, trust_plugins=plugins
    )
    with tempfile.TemporaryDirectory(prefix="rss-rl-") as folder:
        packed = pack_code(Path(folder) / "code", documented_yaml(run))
        sent = _job_options(packed, pip or [], cpus, gpus)
        out = console()
        if run.sampler.backend == "local":
            say(out, _ONE_PROCESS)
        say(out, f"Code: {packed.files} files, {packed.size / 1e6:.2f} MB")
        if dry_run:
            _show(out, job, command, sent)
            return
        from rss_rl.cluster.jobs import open_board

        board = open_board(address, insecure=insecure)
        board.submit(job, command, storage, **sent)
    _announce(out, board, job, storage)
    if follow:
        finish(watch(board, job, out), out)


def entrypoint(
    job: str,
    storage: str,
    *,
    take_over: bool = False,
    insecure: bool = False,
    trust_plugins: bool = False,
) -> str:
    """The shell command of a job that trains or resumes the run at `storage`.

    Args:
        job: its id; names the scratch directory on the learner's node.
        storage: a URI to copy the run to; or an absolute path on a shared disk, which is then the
            directory of the run.
        take_over: from a writer that seems alive. insecure: the cluster checks no token.
        trust_plugins: the user's configuration names plug-ins as package.module:OBJECT.
    """
    from rss_rl.storage import is_uri

    # `exec`, so that a signal reaches the training directly and only once.
    words = ["exec", "python", "-m", "rss_rl.cli.main", "train", "config.yaml", "--resume"]
    if is_uri(storage):
        # Next to the unpacked code, which Ray deletes with its session: the storage keeps the run.
        words += ["--run-dir", shlex.quote(f"runs/{job}"), "--storage", shlex.quote(storage)]
        words += ["--take-over"] * take_over
    else:
        words += ["--run-dir", shlex.quote(storage)]
    words += ["--trust-plugins"] * trust_plugins
    return " ".join(words + ["--insecure"] * insecure)


def _resolve_config(start: str, overrides: list[str], shared: bool) -> tuple[RunConfig, str]:
    """The configuration with data that every node can read, and its name for a job."""
    from rss_rl.config import load_config, with_folders
    from rss_rl.packaged import find_config

    file = find_config(start)
    config = load_config(file, overrides)
    data = _on_every_node(config.data, "data", shared)
    config = config.model_copy(update={"data": data})

    def folder(name: str) -> str:
        if not Path(name).expanduser().is_dir():
            return name  # on the hub
        return _on_every_node(
            name, "the folder of a pretrained model", shared, "its name on the hub"
        )

    config = with_folders(config, folder)
    return config.with_from_run(
        lambda run: _on_every_node(run, "policy.from_run", shared)
    ), file.stem


def _on_every_node(
    path: str, key: str, shared: bool, instead: str = "a URI such as s3://bucket/prefix"
) -> str:
    """A path or URI that is valid on every node."""
    from rss_rl.storage import is_uri

    if is_uri(path):
        return path
    if not shared:
        raise ConfigError(
            f"{key} is a path on this machine: workers on other nodes cannot see it",
            where=path,
            remedy=f"Give {instead}, or --shared-filesystem if every node has the same files there",
        )
    return str(Path(path).expanduser().resolve())


def _resolve_storage(storage: str, shared: bool, take_over: bool) -> str:
    """The storage, valid on every node; refuses a take-over that would have no effect."""
    from rss_rl.storage import is_uri

    storage = _on_every_node(storage, "--storage", shared)
    if take_over and not is_uri(storage):
        raise ConfigError(
            "--take-over is about the writer of a URI; a directory is locked and not taken over",
            where=storage,
            remedy="Stop the other job with 'rss-rl job stop', and submit without --take-over",
        )
    return storage


def _job_options(packed: PackedCode, pip: list[str], cpus: float, gpus: float) -> dict[str, Any]:
    from rss_rl.cluster.package import STOP_WAIT_S

    environment: dict[str, Any] = {
        "working_dir": str(packed.root),
        # Read by Ray's job supervisor.
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)},
    }
    environment |= {"pip": pip} if pip else {}
    asked = {"entrypoint_num_gpus": gpus} if gpus else {}
    return {"runtime_env": environment, "entrypoint_num_cpus": cpus, **asked}


def _show(out: Console, job: str, command: str, sent: dict[str, Any]) -> None:
    shown = {"submission_id": job, "entrypoint": command, **sent}
    say(out, json.dumps(shown, indent=2))
    root = Path(sent["runtime_env"]["working_dir"])
    say(out, "config.yaml:")
    say(out, (root / "config.yaml").read_text(encoding="utf-8"))


def _announce(out: Console, board: JobBoard, job: str, storage: str) -> None:
    for line in (
        f"Job: {job} at {board.url} (Ray {board.version})",
        f"Run: {storage}",
        f"  rss-rl job logs {job} --address {board.url}",
        f"  rss-rl job stop {job} --address {board.url}",
    ):
        say(out, line)
    if not board.guarded:
        say(out, "Warning: this cluster checks no token.")
