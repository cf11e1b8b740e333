"""The processes of a run's Ray actors: naming them in messages, and killing them."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@dataclass(frozen=True)
class ActorProcess:
    """The process of an actor: its id, host name, and node id (hexadecimal)."""

    pid: int
    host: str
    node: str

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}, node {self.node[:12]}"


def this_process() -> ActorProcess:
    """The calling process, which must be a Ray worker."""
    node = ray.get_runtime_context().get_node_id()
    return ActorProcess(os.getpid(), socket.gethostname(), node)


def kill_process(process: ActorProcess) -> None:
    """Kill a process from its own node, as a suspended one does not react to `ray.kill`."""
    if process.node == ray.get_runtime_context().get_node_id():
        _kill_worker(process.pid)
        return
    there = NodeAffinitySchedulingStrategy(process.node, soft=False)
    kill = ray.remote(num_cpus=0, max_retries=0)(_kill_worker)
    kill.options(scheduling_strategy=there).remote(process.pid)


def _kill_worker(pid: int) -> None:
    """Kill a Ray worker on this node."""
    try:
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return


def last_line(error: Exception) -> str:
    """The last line of Ray's message, which names the original exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
