"""Ray clusters: starting one on this machine, or joining one, with token authentication.

Anyone who reaches a Ray cluster and knows its token can run arbitrary code on it, and Ray's head
(GCS), raylets and workers listen on all network interfaces, whatever address is configured, even
without a dashboard. So a cluster started here always checks a token, and one that checks none is
joined only with RAY_AUTH_MODE=disabled. A laptop on an untrusted network needs a firewall, or
`sampler.backend: local`, which does not use Ray. Tokens are sent unencrypted without Ray's TLS
(RAY_USE_TLS).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.exceptions import RayError

from rss_rl.cluster.actors import last_line
from rss_rl.cluster.auth import ask_head, check, ensure_token, switched_off
from rss_rl.errors import ClusterError

ADDRESS_VARIABLE = "RAY_ADDRESS"
_LOCAL_ADDRESS = "local"
_HOST_AND_PORT = re.compile(r"[^\s/]+:\d+")
_OBJECT_STORE = 512 * 2**20
"""Bytes; Ray's default is 30% of the machine's. Snapshots and rollouts are 10 to 50 MB each."""
_OPEN = "{} checks no token (RAY_AUTH_MODE=disabled): anyone who reaches it can run code on it"
# Silences a warning about tasks without GPUs.
_QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# For a cluster started here: if its driver is killed, most of its processes exit within seconds,
# instead of after Ray's 60; and workers are as nice as their driver, not by 15 more, with which
# they hardly run on a busy machine.
_LOCAL = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10", "RAY_worker_niceness": "0"}


@dataclass(frozen=True)
class ClusterInfo:
    """The cluster this process is connected to.

    how      started by `connect`; joined; or found already in use
    address  host:port of its head
    notes    for the user
    """

    how: Literal["started", "joined", "found"]
    address: str
    notes: tuple[str, ...] = ()


def connect(
    address: str | None = None,
    *,
    cores: int = 1,
    timeout_s: float = 30.0,
) -> ClusterInfo:
    """Join the cluster at `address` or RAY_ADDRESS, or start one on this machine.

    Args:
        address: host:port of a head, 'local' to start a cluster regardless of RAY_ADDRESS, or None.
        cores: minimum number of logical CPUs of a cluster started here, which otherwise has those
            of the machine, so that every actor can be placed.
        timeout_s: how long to wait for a cluster that does not respond.

    Raises:
        ClusterError: it cannot be joined or started, or must not be trusted.
    """
    if ray.is_initialized():
        return ClusterInfo("found", ray.get_runtime_context().gcs_address)
    where = address or os.environ.get(ADDRESS_VARIABLE) or _LOCAL_ADDRESS
    joins = where != _LOCAL_ADDRESS
    for name, value in (_QUIET if joins else _QUIET | _LOCAL).items():
        os.environ.setdefault(name, value)
    return _join(where, timeout_s) if joins else _start(cores)


@contextmanager
def connected(
    note: Callable[[str], object], address: str | None = None, **options: Any
) -> Iterator[ClusterInfo]:
    """Connect, pass on the notes for the user, and disconnect in the end.

    A cluster that was started here is then ended with all its processes.

    Args:
        note: called with each note.
        address, options: see `connect`.
    """
    cluster = connect(address, **options)
    try:
        for line in cluster.notes:
            note(line)
        yield cluster
    finally:
        if cluster.how != "found":
            ray.shutdown()


def quiet() -> None:
    """Limit Ray's loggers to warnings; errors reach the user as exceptions."""
    for name in ("", ".dashboard.modules.dashboard_sdk", ".dashboard.modules.job.sdk"):
        logging.getLogger(f"ray{name}").setLevel(logging.WARNING)


def _start(cores: int) -> ClusterInfo:
    if not switched_off():
        ensure_token()
    address = _init(
        "this machine",
        # With None, Ray would join any cluster that runs on this machine.
        address=_LOCAL_ADDRESS,
        num_cpus=max(os.cpu_count() or 1, cores),
        object_store_memory=_OBJECT_STORE,
        include_dashboard=False,
    )
    if switched_off():
        return ClusterInfo("started", address, (_OPEN.format(address),))
    if ask_head(address).kind != "guarded":
        ray.shutdown()
        raise ClusterError(
            "Ray started a cluster that checks no token",
            remedy="Set RAY_AUTH_MODE=token before Ray is imported",
        )
    return ClusterInfo("started", address)


def _join(where: str, timeout_s: float) -> ClusterInfo:
    if not _HOST_AND_PORT.fullmatch(where):
        raise ClusterError(
            "this is not the address of a head",
            where=where,
            remedy="Give host:port (6379 by default) on a machine of the cluster, or submit the run"
            " as a job: 'rss-rl submit'",
        )
    token = check(ask_head, where, timeout_s=timeout_s)
    notes = () if token else (_OPEN.format(where),)
    return ClusterInfo("joined", _init(where, address=where), notes)


def _init(where: str, **options: Any) -> str:
    """Connect to the cluster, or start one; the address of its head."""
    quiet()
    try:
        with _own_handlers():
            context: Any = ray.init(log_to_driver=False, configure_logging=False, **options)
    except (ConnectionError, OSError, RuntimeError, ValueError, RayError) as error:
        text = " ".join(str(error).split())
        if "mismatch" in text.lower():
            what, remedy = text, "Use the cluster's Python and Ray here, or 'rss-rl submit'"
        else:
            what, remedy = f"Ray failed: {last_line(error)}", _remedy(text, options["address"])
        raise ClusterError(what, where=where, remedy=remedy) from error
    return str(context.address_info["gcs_address"])


def _remedy(text: str, address: str) -> str:
    if "AF_UNIX path length" in text:
        return "Set TMPDIR to a shorter path, such as /tmp: Ray's sockets are in it"
    if address == _LOCAL_ADDRESS:
        return "Check the free memory and /dev/shm, or use sampler.backend=local"
    return "Run this on a machine of the cluster, or submit a job: 'rss-rl submit'"


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Keep our SIGINT and SIGTERM handlers, which Ray replaces by one that exits at once.

    A signal within the second that Ray takes to start still gets Ray's handler.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # others may not set handlers
            for number, handler in before.items():
                signal.signal(number, handler)
