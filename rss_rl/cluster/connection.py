"""Ray clusters: starting one on this machine, or joining one, with a token in either case.

Whoever reaches a Ray cluster and knows its token can run any code on it, and Ray's head (GCS),
raylets and workers listen on all network interfaces whatever address one asks for, without a
dashboard too. So a cluster started here always checks a token, one that checks none is not joined
unless the user insists, and a laptop on a foreign network needs a firewall, or `sampler.backend:
local`, which uses no Ray at all. Tokens travel in clear unless Ray's TLS is set up (RAY_USE_TLS).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
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
"""Bytes; Ray would take 30% of the machine's. Snapshots and rollouts are 10 to 50 MB each."""
_END_S = 10.0
# Ray warns drivers of a change that concerns tasks without GPUs; this switches it off.
_QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Of a cluster started here: when its driver is killed, processes that still look for it mostly give
# up within seconds, and not after Ray's 60, so that nothing of a dead run stays behind for long.
_LOCAL = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10"}


@dataclass(frozen=True)
class ClusterInfo:
    """The cluster this process is connected to.

    how            `connect` started it, and `shutdown` ends it; or joined it; or Ray was in use
    address        host:port of its head. nodes: alive at the time
    session_name   of Ray; in the command line of its processes. session_dir: with its logs
    authenticated  whether it checks tokens; notes: for the user
    mode_before    RAY_AUTH_MODE as it was found, for `shutdown`
    """

    how: Literal["started", "joined", "found"]
    address: str
    nodes: int
    session_name: str
    session_dir: str
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
            whatever RAY_ADDRESS says, or None.
        cores: logical CPUs wanted; a cluster started here has as many, or all of the machine's
            where that is more, so that too few never leave an actor waiting for ever.
        dashboard: start it, on 127.0.0.1 only; only of a cluster started here.
        insecure: also use a cluster that checks no token.
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
    """Leave the cluster; one that was started here is ended, with every process of it.

    Ray's own shutdown comes first. Processes of the session that outlive it by 10 s are killed,
    which frees their shared memory. A cluster that was joined keeps running.
    """
    if info.how == "found":
        return
    processes = session_processes(info.session_name) if info.how == "started" else []
    ray.shutdown()
    if processes:
        end_processes(processes, _END_S)
    token_mode(info.mode_before)


def quiet() -> None:
    """Let Ray's own loggers print warnings only; errors reach the user as exceptions."""
    for name in ("", ".dashboard.modules.dashboard_sdk", ".dashboard.modules.job.sdk"):
        logging.getLogger(f"ray{name}").setLevel(logging.WARNING)


def token_mode(mode: str | None) -> None:
    """Set RAY_AUTH_MODE, or remove it, and let a Ray that is already imported know.

    Only in the environment of a client does Ray decide whether to send its token: an address
    given explicitly does not make it do so.
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
            "RAY_AUTH_MODE=disabled would leave the samplers' cluster open to everybody who"
            " reaches this machine",
            remedy="Unset it, or accept it with --insecure",
        )
    notes: tuple[str, ...] = ()
    if not switched_off():
        _, notes = ensure_token()  # before Ray makes one that everybody can read
        token_mode("token")
    context = _init(
        "this machine",
        # Not None: Ray would join whatever cluster somebody has started on this machine.
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
            remedy=f"Install ray=={head.version} here, or send a job: 'rss-rl submit'",
        )
    token_mode("token" if head.guarded else "disabled")
    notes = () if head.guarded else (f"{where} checks no token: who reaches it runs code on it",)
    # In a job Ray knows the address and the job's runtime environment by itself.
    options = {} if inside_job() else {"address": address}
    return _describe(_init(where, **options), "joined", head.guarded, notes, before)


def _resolve(where: str) -> str:
    """host:port of the head that `where` means."""
    if "://" in where:
        raise ClusterError(
            "that is not the address of a head but of a dashboard or Ray client server",
            where=where,
            remedy="Give host:port (6379 by default) on a machine of the cluster, or send the run"
            " there as a job: 'rss-rl submit'",
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
            remedy = "Use the cluster's Python and Ray here, or send a job: 'rss-rl submit'"
            raise ClusterError(text, where=where, remedy=remedy) from error
        remedy = (
            "Look at the free memory and at /dev/shm, or use sampler.backend=local"
            if local
            else "Run this on a machine of the cluster; from elsewhere send a job: 'rss-rl submit'"
        )
        raise ClusterError(
            f"Ray refuses: {last_line(error)}", where=where, remedy=remedy
        ) from error


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Keep our handlers of SIGINT and SIGTERM, which Ray replaces by one that dies at once.

    A signal within the second that Ray takes to start still meets Ray's.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # others may set none
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
        session_dir=found["session_dir"],
        authenticated=authenticated,
        notes=notes,
        mode_before=before,
    )
