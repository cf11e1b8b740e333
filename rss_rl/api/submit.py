"""Train on a Ray cluster, as a job."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from rss_rl.api.options import Overrides, TakeOver
from rss_rl.api.terminal import SafeConsole, say, shell
from rss_rl.errors import ConfigError, DataError, StorageError

if TYPE_CHECKING:
    from rich.console import Console

    from rss_rl.config import RunConfig


_Count = Annotated[float, Parameter(validator=Number(gte=0))]
_ONE_PROCESS = (
    "Note: with sampler.backend=local the whole run is one process on one node of the cluster;"
    " add sampler.backend=ray to sample on many"
)


def submit(
    config: str,
    overrides: Overrides = (),
    *,
    storage: Annotated[str, Parameter(metavar="URI")],
    address: Annotated[str | None, Parameter(metavar="URL")] = None,
    shared_filesystem: bool = False,
    pip: Annotated[list[str] | None, Parameter(metavar="REQUIREMENT")] = None,
    cpus: _Count = 1,
    gpus: _Count = 0,
    take_over: TakeOver = False,
    dry_run: bool = False,
) -> None:
    """Train on a Ray cluster: sends the code and the resolved configuration as a job.

    The cluster's nodes need Python with torch and the other dependencies; rss-rl itself is sent
    along. After a failure or a stop, the same command resumes from the last checkpoint in the
    storage. `ray job` lists, follows and stops what was submitted; the command prints how.

    Args:
        config: A YAML file, or a name that `rss-rl config list` shows.
        overrides: Settings that differ from the file: `learner.policy.l2=1e-4`.
        storage: Where the run is kept: s3://bucket/run, or a path with --shared-filesystem.
        address: Dashboard, such as http://HEAD:8265. Default: RAY_ADDRESS.
        shared_filesystem: Say that local paths are the same files on every node.
        pip: Package to install for the job; repeatable.
        cpus: CPUs for the learner's process.
        gpus: GPUs for the learner's process.
        dry_run: Show what would be done, and stop.

    Examples:
        `rss-rl submit sick data=s3://b/d sampler.backend=ray --storage s3://b/r
        --address http://HEAD:8265`

        `rss-rl submit sick data=/nfs/d sampler.backend=ray --storage /nfs/r --shared-filesystem`
    """
    from rss_rl.cluster.auth import switched_off
    from rss_rl.cluster.submission import STOP_WAIT_S, dashboard_address, pack_code, send_job
    from rss_rl.config import plugins_named, yaml_text

    run, name = _resolve_config(config, overrides, shared_filesystem)
    storage = _on_every_node(storage, "--storage", shared_filesystem)
    name = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    plugins = any(plugins_named(run))
    command = entrypoint(name, storage, take_over=take_over, trust_plugins=plugins)
    variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}
    if switched_off():
        variables["RAY_AUTH_MODE"] = "disabled"
    out, text = SafeConsole(), yaml_text(run.model_dump(mode="json"))
    if run.sampler.backend == "local":
        say(out, _ONE_PROCESS)
    with tempfile.TemporaryDirectory(prefix="rss-rl-") as folder:
        code = Path(folder) / "code"
        say(out, f"Code: {pack_code(code, text) / 1e6:.2f} MB")
        environment: dict[str, Any] = {"working_dir": str(code), "env_vars": variables}
        job: dict[str, Any] = {
            "submission_id": name,
            "entrypoint": command,
            "entrypoint_num_cpus": cpus,
            "entrypoint_num_gpus": gpus,
            "runtime_env": environment | ({"pip": pip} if pip else {}),
        }
        if dry_run:
            say(out, f"{json.dumps(job, indent=2)}\nconfig.yaml:\n{text}")
            return
        url = dashboard_address(address)
        _check_data(run.data, out)
        send_job(url, job)
    say(out, f"Job: {name}\nRun: {storage}")
    mode = "" if switched_off() else "RAY_AUTH_MODE=token "
    for words in (["logs", "--follow", name], ["stop", name], ["list"]):
        say(out, f"  {mode}{shell('ray', 'job', *words, '--address', url)}")


def entrypoint(
    job: str,
    storage: str,
    *,
    take_over: bool = False,
    trust_plugins: bool = False,
) -> str:
    """The shell command of a job that trains or resumes the run at `storage`.

    Args:
        job: its id; names the scratch directory on the learner's node.
        storage: a URI to copy the run to; or an absolute path on a shared disk, which is then the
            directory of the run.
        take_over: from a writer that seems alive.
        trust_plugins: the user's configuration names plug-ins as package.module:OBJECT.
    """
    from rss_rl.storage import is_uri

    # `exec`, so that a signal reaches the training directly and only once.
    words = ["exec", "python", "-m", "rss_rl.cli.main", "train", "config.yaml", "--resume"]
    if is_uri(storage):
        # Next to the unpacked code, which Ray deletes with its session: the storage keeps the run.
        words += ["--out", f"runs/{job}", "--storage", storage]
        words += ["--take-over"] * take_over
    else:
        words += ["--out", storage]
    return shell(*words, *["--trust-plugins"] * trust_plugins)


def _resolve_config(start: str, overrides: Overrides, shared: bool) -> tuple[RunConfig, str]:
    """The configuration with data that every node can read, and its name for a job."""
    from rss_rl.config import load_config, settings, with_folders
    from rss_rl.packaged import find_config

    file = find_config(start)
    config = load_config(file, settings(overrides))
    data = _on_every_node(config.data, "data", shared)
    what, instead = "the folder of a pretrained model", "its name on the hub"

    def folder(name: str) -> str:
        here = Path(name).expanduser().is_dir()
        return _on_every_node(name, what, shared, instead) if here else name

    config = with_folders(config.model_copy(update={"data": data}), folder)
    config = config.with_from_run(lambda run: _on_every_node(run, "policy.from_run", shared))
    return config, file.stem


def _check_data(location: str, out: Console) -> None:
    """Refuse data that are not there; storage that this machine cannot read may still be theirs."""
    from rss_rl.data.manifest import MANIFEST_FILE
    from rss_rl.storage import open_storage

    try:
        there = open_storage(location).read(MANIFEST_FILE) is not None
    except StorageError as error:
        say(out, f"Note: whether the data are there is not known: {error}")
        return
    if not there:
        raise DataError(
            "there are no prepared data",
            where=location,
            remedy="Prepare them (rss-rl data prepare ... --out DIR), and copy the folder there",
        )


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
