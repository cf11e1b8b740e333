"""Where an actor lives, for messages that name it."""

from __future__ import annotations

__all__ = ["Home", "find_home"]

import os
import socket
from dataclasses import dataclass

import ray


@dataclass(frozen=True)
class Home:
    """Process id, host name, node id (hexadecimal)."""

    pid: int
    host: str
    node: str

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}, node {self.node[:12]}"


def find_home() -> Home:
    """Of the process that calls it, which must be Ray's."""
    return Home(os.getpid(), socket.gethostname(), ray.get_runtime_context().get_node_id())
