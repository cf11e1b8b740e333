"""A Ray cluster of two nodes with a network between them that can be cut. Linux, as root.

The second node lies in a network namespace and is reached over a pair of virtual interfaces alone;
both share the files of the machine. A node that Ray gave up while the network was cut ends itself,
and is started again, as who looks after a cluster would do.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from marked import MARK, kill_all, processes_of
from ray_nodes import free_port

FAR = "far"
"""The resource of the second node."""
START_S = 60.0
RUN_SETTINGS = [f"sampler.resources={{{FAR}: 1}}"]


class TwoNodes:
    """Close it, whatever happened.

    Args:
        mark: for `processes_of`, in the environment of all that the nodes start.
        cpus: of each node.
    """

    def __init__(self, mark: str, cpus: int = 2) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="tn", dir="/tmp"))
        self._space, self._cpus, self._mark = f"rss{os.getpid()}", cpus, mark
        self._here, self._there = f"{self._space}a", f"{self._space}b"
        net = f"10.213.{os.getpid() % 250}"
        self._ip, self._far_ip = f"{net}.1", f"{net}.2"
        self.address = f"{self._ip}:{free_port()}"
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
        self._inherited = {**os.environ, **self.environment, MARK: mark, "OMP_NUM_THREADS": "1"}
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts, self._is_cut = 0, False
        try:
            self._connect()
            self._start_head()
            self._start_far()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        _ip("netns", "add", self._space)
        _ip("link", "add", self._here, "type", "veth", "peer", "name", self._there)
        _ip("link", "set", self._there, "netns", self._space)
        _ip("address", "add", f"{self._ip}/24", "dev", self._here)
        _ip("link", "set", self._here, "up")
        _ip("-n", self._space, "address", "add", f"{self._far_ip}/24", "dev", self._there)
        for name in (self._there, "lo"):
            _ip("-n", self._space, "link", "set", name, "up")

    def _start_head(self) -> None:
        port = self.address.partition(":")[2]
        options = ["--head", f"--port={port}", "--include-dashboard=False", "--disable-usage-stats"]
        self._start("near", [], [*options, f"--node-ip-address={self._ip}"])

    def _start_far(self) -> None:
        resources = json.dumps({FAR: self._cpus})
        options = [f"--address={self.address}", f"--resources={resources}"]
        space = ["ip", "netns", "exec", self._space]
        self._start(FAR, space, [*options, f"--node-ip-address={self._far_ip}"])

    def _start(self, name: str, space: list[str], options: list[str]) -> None:
        common = ["--block", f"--num-cpus={self._cpus}", "--object-store-memory=200000000"]
        common += [f"--temp-dir={self._root / name}"]
        log = self._root / f"{name}.log"
        with log.open("w") as file:
            self._nodes[name] = subprocess.Popen(
                [*space, sys.executable, "-m", "ray.scripts.scripts", "start", *options, *common],
                env=self._inherited,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text():
            ended = self._nodes[name].poll() is not None
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"node '{name}' did not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)

    def cut(self) -> None:
        """Let nothing through; each node still reaches itself."""
        _ip("route", "add", "blackhole", f"{self._far_ip}/32")
        _ip("-n", self._space, "route", "add", "blackhole", f"{self._ip}/32")
        self._is_cut = True

    def mend(self) -> None:
        """Let everything through again."""
        if self._is_cut:
            _ip("route", "del", "blackhole", f"{self._far_ip}/32")
            _ip("-n", self._space, "route", "del", "blackhole", f"{self._ip}/32")
            self._is_cut = False

    def restart_if_lost(self) -> None:
        """Start the second node again where it has ended itself."""
        if not self._is_cut and self._nodes[FAR].poll() is not None:
            self.restarts += 1
            self._start_far()

    def close(self) -> None:
        """End the nodes and take the network away."""
        self.mend()
        lines = processes_of(self._mark)
        kill_all(pid for pid, line in lines.items() if str(self._root) in line)
        for node in self._nodes.values():
            node.kill()
            node.wait(10)
        subprocess.run(["ip", "link", "del", self._here], capture_output=True)
        subprocess.run(["ip", "netns", "del", self._space], capture_output=True)
        shutil.rmtree(self._root, ignore_errors=True)


def _ip(*words: str) -> None:
    """A command of iproute2.

    Raises:
        RuntimeError: it fails, as without the right to change the network.
    """
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise RuntimeError("there is no 'ip': install iproute2") from error
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
