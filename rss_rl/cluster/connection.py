"""Ray clusters: starting one on this machine, or joining one, with token authentication.

Anyone who reaches a Ray cluster and knows its token can run arbitrary code on it, and Ray's head
(GCS), raylets and workers listen on all network interfaces, whatever address is configured, even
without a dashboard. So a cluster started here always checks a token, and one that checks none is
joined only with --insecure. A laptop on an untrusted network needs a firewall, or `sampler.backend:
local`, which does not use Ray. Tokens are sent unencrypted without Ray's TLS (RAY_USE_TLS).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray
from ray import _raylet
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray.exceptions import RayError

from rss_rl.cluster.actors import last_line
from rss_rl.cluster.auth import MODE_VARIABLE, ensure_token, find_token, switched_off
from rss_rl.cluster.probe import check, probe_gcs
from rss_rl.cluster.processes import end_processes, inside_job, session_processes
from rss_rl.errors import ClusterError

_compiled: Any = _raylet  # ships no types
ADDRESS_VARIABLE = "RAY_ADDRESS"
_LOCAL_ADDRESS = "local"
_OBJECT_STORE = 512 * 2**20
"""Bytes; Ray's default is 30% of the machine's. Snapshots and rollouts are 10 to 50 MB each."""
_END_S = 10.0
# Silences a warning about tasks without GPUs.
_QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# For a cluster started here: if its driver is killed, most of its processes exit within seconds,
# instead of after Ray's 60.
_LOCAL = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10"}


@dataclass(frozen=True)
class ClusterInfo:
    """The cluster this process is connected to.

    how            started by `connect`, and ended by `shutdown`; joined; or found already in use
    address        host:port of its head. nodes: number alive when connected
    session_name   Ray's, in the command line of its processes
    authenticated  whether it checks tokens. notes: for the user
    mode_before    RAY_AUTH_MODE before, which `shutdown` restores
    """

    how: Literal["started", "joined", "found"]
    address: str
    nodes: int
    session_name: str
    authenticated: bool
    notes: tuple[str, ...] = ()
    mode_before: str | None = None


def connect(
    address: str | None = None,
    *,
    cores: int = 1,
    dashboard: bool = False,
    insecure: bool = False,
    timeout_s: float = 30.0,
) -> ClusterInfo:
    """Join the cluster at `address` or RAY_ADDRESS, or start one on this machine.

    Args:
        address: host:port of a head, 'auto' for the one on this machine, 'local' to start one
            regardless of RAY_ADDRESS, or None.
        cores: minimum number of logical CPUs of a cluster started here, which otherwise has those
            of the machine, so that every actor can be placed.
        dashboard: of a cluster started here, on 127.0.0.1 only.
        insecure: allow a cluster that checks no token.
        timeout_s: how long to wait for a cluster that does not respond.

    Raises:
        ClusterError: it cannot be joined or started, or must not be trusted.
    """
    if ray.is_initialized():
        guarded = os.environ.get(MODE_VARIABLE, "").lower() == "token"
        return _describe(ray.init(ignore_reinit_error=True), "found", guarded)
    before = os.environ.get(MODE_VARIABLE)
    where = address or os.environ.get(ADDRESS_VARIABLE) or _LOCAL_ADDRESS
    joins = where != _LOCAL_ADDRESS
    try:
        for name, value in (_QUIET if joins else _QUIET | _LOCAL).items():
            os.environ.setdefault(name, value)
        if joins:
            return _join(where, insecure, timeout_s, before)
        return _start(cores, dashboard, insecure, before)
    except BaseException:
        token_mode(before)
        raise


def shutdown(info: ClusterInfo) -> None:
    """Disconnect from the cluster; one that was started here is ended with all its processes.

    Processes of the session that outlive Ray's own shutdown by 10 s are killed, which frees their
    shared memory. A cluster that was joined keeps running.
    """
    if info.how == "found":
        return
    processes = session_processes(info.session_name) if info.how == "started" else []
    ray.shutdown()
    if processes:
        end_processes(processes, _END_S)
    token_mode(info.mode_before)


@contextmanager
def connected(
    note: Callable[[str], object], address: str | None = None, **options: Any
) -> Iterator[ClusterInfo]:
    """Connect, pass on the notes for the user, and disconnect in the end.

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
        shutdown(cluster)


def quiet() -> None:
    """Limit Ray's loggers to warnings; errors reach the user as exceptions."""
    for name in ("", ".dashboard.modules.dashboard_sdk", ".dashboard.modules.job.sdk"):
        logging.getLogger(f"ray{name}").setLevel(logging.WARNING)


def token_mode(mode: str | None) -> None:
    """Set or remove RAY_AUTH_MODE, and make an already imported Ray read it again.

    Ray decides only by this variable whether to send its token, whatever address it is given.
    """
    if mode is None:
        os.environ.pop(MODE_VARIABLE, None)
    else:
        os.environ[MODE_VARIABLE] = mode
    _compiled.Config.initialize("")
    _compiled.AuthenticationTokenLoader.instance().reset_cache()


def _start(cores: int, dashboard: bool, insecure: bool, before: str | None) -> ClusterInfo:
    if switched_off() and not insecure:
        raise ClusterError(
            "RAY_AUTH_MODE=disabled would leave the samplers' cluster open to anyone who can"
            " reach this machine",
            remedy="Unset it, or accept it with --insecure",
        )
    notes: tuple[str, ...] = ()
    if not switched_off():
        _, notes = ensure_token()  # before Ray creates a world-readable one
        token_mode("token")
    context = _init(
        "this machine",
        # With None, Ray would join any cluster that runs on this machine.
        address=_LOCAL_ADDRESS,
        num_cpus=max(os.cpu_count() or 1, cores),
        object_store_memory=_OBJECT_STORE,
        include_dashboard=dashboard,
        dashboard_host="127.0.0.1",
    )
    return _describe(context, "started", not switched_off(), notes, before)


def _join(where: str, insecure: bool, timeout_s: float, before: str | None) -> ClusterInfo:
    address = _resolve(where)
    token = find_token()
    head = check(probe_gcs, address, token, insecure=insecure, timeout_s=timeout_s)
    if head.version != ray.__version__:
        raise ClusterError(
            f"the cluster runs Ray {head.version}, this is Ray {ray.__version__}",
            where=where,
            remedy=f"Install ray=={head.version} here, or submit a job: 'rss-rl submit'",
        )
    token_mode("token" if head.guarded else "disabled")
    notes = () if head.guarded else (f"{where} checks no token: anyone can run code on it",)
    # In a job, Ray itself knows the address and the runtime environment.
    options = {} if inside_job() else {"address": address}
    return _describe(_init(where, **options), "joined", head.guarded, notes, before)


def _resolve(where: str) -> str:
    """host:port of the head at `where`."""
    if "://" in where:
        raise ClusterError(
            "this is the address of a dashboard or Ray client server, not of a head",
            where=where,
            remedy="Give host:port (6379 by default) on a machine of the cluster, or submit the run"
            " as a job: 'rss-rl submit'",
        )
    try:
        return str(canonicalize_bootstrap_address_or_die(where))
    except (ConnectionError, ValueError, OSError) as error:
        raise ClusterError(
            f"no cluster to join: {last_line(error)}",
            where=where,
            remedy="Give host:port of its head, or unset RAY_ADDRESS to work on this machine",
        ) from error


def _init(where: str, **options: Any) -> Any:
    quiet()
    local = options.get("address") == _LOCAL_ADDRESS
    try:
        with _own_handlers():
            return ray.init(log_to_driver=False, configure_logging=False, **options)
    except (ConnectionError, OSError, RuntimeError, ValueError, RayError) as error:
        text = " ".join(str(error).split())
        if "mismatch" in text.lower():
            remedy = "Use the cluster's Python and Ray here, or submit a job: 'rss-rl submit'"
            raise ClusterError(text, where=where, remedy=remedy) from error
        remedy = (
            "Check the free memory and /dev/shm, or use sampler.backend=local"
            if local
            else "Run this on a machine of the cluster, or submit a job: 'rss-rl submit'"
        )
        raise ClusterError(f"Ray failed: {last_line(error)}", where=where, remedy=remedy) from error


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


def _describe(
    context: Any,
    how: Literal["started", "joined", "found"],
    authenticated: bool,
    notes: tuple[str, ...] = (),
    before: str | None = None,
) -> ClusterInfo:
    found = context.address_info
    return ClusterInfo(
        how=how,
        address=found["gcs_address"],
        nodes=sum(node["Alive"] for node in ray.nodes()),  # type: ignore[no-untyped-call]
        session_name=Path(found["session_dir"]).name,
        authenticated=authenticated,
        notes=notes,
        mode_before=before,
    )
