"""Real Ray: of this process alone, or nodes started as a user would, in processes of their own.

Such nodes share no path with the tests or each other. They run in a bare virtual environment: its
.pth file adds the dependencies by path, and as lines of a .pth file are not searched for further
ones, an editable install of rss_rl is not seen.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from kernel_cache import share_kernels
from marked import MARK, kill_all, processes_of
from ray._private.authentication_test_utils import reset_auth_token_state

from rss_rl.cluster.auth import ensure_token

START_S = 40


def forget_token() -> None:
    """Ray keeps the token, and whether to send it, in compiled code: let it look again."""
    reset_auth_token_state()


def start_ray(cpus: int, **options: Any) -> None:
    """Ray with as many CPUs, unless this process has one; `options` of `ray.init`.

    Without 'local' Ray would join what a test that runs beside this one has started.
    """
    if ray.is_initialized():
        return
    ensure_token()  # also where the home cannot be written, of which Ray knows nothing
    quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    ray.init("local", num_cpus=cpus, **quiet, **options)


@contextmanager
def own_ray(cpus: int, **options: Any) -> Iterator[None]:
    """A new Ray, which ends with the context; one that this process has ends before."""
    ray.shutdown()
    start_ray(cpus, **options)
    try:
        yield
    finally:
        ray.shutdown()


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def bare_environment(root: Path) -> Path:
    """The bin directory of an environment with the dependencies and without rss_rl."""
    venv.create(root, symlinks=True)
    paths = {"base": str(root), "platbase": str(root)}
    packages = Path(sysconfig.get_path("purelib", vars=paths))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return root / "bin"


@dataclass
class Nodes:
    """A head and what joined it. Close it, whatever happened.

    token: None for a cluster that checks none. installed: with rss_rl, as this process has it.
    """

    token: str | None
    installed: bool = False
    root: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="rn", dir="/tmp")))
    port: int = field(default_factory=free_port)
    dashboard_port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        ray.shutdown()  # of one that this process has: it would be taken for the nodes
        self._started: list[subprocess.Popen[bytes]] = []
        own = Path(sys.executable).parent
        self.bin = own if self.installed else bare_environment(self.root / "environment")
        if self.token is not None:
            self.token_path.write_text(self.token)
            self.token_path.chmod(0o600)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def dashboard(self) -> str:
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def token_path(self) -> Path:
        return self.root / "token"

    def start_head(self, *, cpus: int, dashboard: bool) -> None:
        options = ["--head", f"--port={self.port}", f"--ray-client-server-port={free_port()}"]
        options += [f"--include-dashboard={dashboard}", f"--dashboard-port={self.dashboard_port}"]
        self._start("head", [*options, "--disable-usage-stats"], cpus)

    def join(self, name: str, *, cpus: int) -> None:
        """A second node, with its own files and resource `name`."""
        resources = json.dumps({name: cpus})
        self._start(name, [f"--address={self.address}", f"--resources={resources}"], cpus)

    def _start(self, name: str, options: list[str], cpus: int) -> None:
        home = self.root / name / "home"
        share_kernels(home / ".cache" / "rss-rl")
        common = ["--block", f"--num-cpus={cpus}", "--object-store-memory=100000000"]
        common += ["--min-worker-port=0", "--max-worker-port=0", f"--temp-dir={home.parent}/r"]
        common += [f"--dashboard-agent-listen-port={free_port()}"]
        dropped = ("PYTHON", "VIRTUAL", "RAY_", "OMP_", "MKL_", "OPENBLAS_")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        environment |= {"HOME": str(home), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        environment |= {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", MARK: str(self.root)}
        environment |= {"RAY_worker_niceness": "0"}
        if self.token is not None:
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        log = self.root / f"{name}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [self.bin / "python", "-m", "ray.scripts.scripts", "start", *options, *common],
                cwd=home,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._started.append(process)
        deadline = time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def close(self) -> None:
        kill_all(processes_of(str(self.root)))
        for process in self._started:
            process.wait(10)
        shutil.rmtree(self.root, ignore_errors=True)


def new_token() -> str:
    return secrets.token_hex(16)
