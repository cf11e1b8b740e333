"""Probes whether a cluster checks tokens, before a token or code is sent to it.

The first request has no token: only a refusal proves that tokens are checked. An answer that is
neither a refusal nor a success is not from a Ray cluster.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Literal

import grpc
from ray.core.generated import gcs_service_pb2

from rss_rl.cluster.auth import Token
from rss_rl.errors import ClusterError

_proto: Any = gcs_service_pb2  # its classes are created at run time
_TIMEOUT_S = 2.5
_RETRY_S = 0.5
_METHOD = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_SILENCES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True)
class Probe:
    """The result of a probe.

    answer   guarded: refused; open: accepted; silent: no answer; foreign: not a Ray cluster
    version  of Ray, if known; detail: of an error
    """

    answer: Literal["guarded", "open", "silent", "foreign"]
    version: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Checked:
    """A cluster that may be used: its version of Ray, and whether it checks tokens."""

    version: str
    guarded: bool


def probe_gcs(address: str, token: Token | None = None) -> Probe:
    """Ask the head's control service (GCS) at host:port whether it is alive; at most 2.5 s."""
    metadata = [("authorization", f"Bearer {token.secret}")] if token else None
    with _channel(address) as channel:
        call = channel.unary_unary(
            _METHOD,
            request_serializer=_proto.CheckAliveRequest.SerializeToString,
            response_deserializer=_proto.CheckAliveReply.FromString,
        )
        try:
            reply = call(_proto.CheckAliveRequest(), timeout=_TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() in _REFUSALS:
                return Probe("guarded")
            answer: Any = "silent" if error.code() in _SILENCES else "foreign"
            return Probe(answer, detail=str(error.details() or error.code()))
    return Probe("open", version=reply.ray_version)


def _channel(address: str) -> grpc.Channel:
    options = [("grpc.enable_http_proxy", 0)]
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return grpc.insecure_channel(address, options)
    from ray._common.tls_utils import load_certs_from_env

    chain, key, authority = load_certs_from_env()  # type: ignore[no-untyped-call]
    return grpc.secure_channel(
        address, grpc.ssl_channel_credentials(authority, key, chain), options
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def probe_dashboard(url: str, token: Token | None = None) -> Probe:
    """Request the list of jobs and the version from the Jobs API at `url`; at most 2.5 s each."""
    headers = {"Authorization": f"Bearer {token.secret}"} if token else {}
    opener = urllib.request.build_opener(_NoRedirect)
    version = ""
    try:
        for path in ("/api/jobs/", "/api/version"):
            request = urllib.request.Request(url.rstrip("/") + path, headers=headers)
            with opener.open(request, timeout=_TIMEOUT_S) as reply:
                version = json.load(reply)["ray_version"] if path == "/api/version" else ""
    except urllib.error.HTTPError as error:
        refused = error.code in (401, 403)
        return Probe("guarded" if refused else "foreign", detail=f"HTTP status {error.code}")
    except OSError as error:
        return Probe("silent", detail=str(getattr(error, "reason", error)))
    except (HTTPException, ValueError, KeyError, TypeError) as error:
        return Probe("foreign", detail=f"{type(error).__name__} in its response")
    return Probe("open", version=version)


def check(
    probe: Callable[[str, Token | None], Probe],
    where: str,
    token: Token | None,
    *,
    insecure: bool,
    timeout_s: float,
) -> Checked:
    """Wait for a cluster, and ensure that it checks tokens and accepts ours.

    Args:
        probe: `probe_gcs` or `probe_dashboard`. where: its address.
        token: ours, or None.
        insecure: also accept a cluster that checks no token.
        timeout_s: how long to wait for a response.

    Raises:
        ClusterError: no response, no token is checked, or ours is wrong or missing.
    """
    deadline = time.monotonic() + timeout_s
    while (found := probe(where, None)).answer == "silent" and time.monotonic() < deadline:
        time.sleep(_RETRY_S)
    if found.answer == "silent":
        raise ClusterError(
            f"no Ray cluster answered within {timeout_s:.0f} s ({found.detail})",
            where=where,
            remedy="Check that it runs, the port (head 6379, dashboard 8265), and firewalls",
        )
    if found.answer == "open" and not insecure:
        raise ClusterError(
            "the cluster checks no token: anyone who can reach it can run code on it, with access"
            " to what you send there",
            where=where,
            remedy="Create a token ('ray get-auth-token --generate'), copy it to every node and"
            " start them with RAY_AUTH_MODE=token; or accept it with --insecure",
        )
    guarded = found.answer == "guarded"
    if guarded:
        found = _with_token(probe, where, token)
    if found.answer != "open":
        raise ClusterError(
            f"the server there is not a Ray cluster ({found.detail})",
            where=where,
            remedy="Check the address; TLS needs RAY_USE_TLS=1 here, too",
        )
    return Checked(found.version, guarded)


def _with_token(
    probe: Callable[[str, Token | None], Probe], where: str, token: Token | None
) -> Probe:
    if token is None:
        raise ClusterError(
            "the cluster requires a token, and there is none here",
            where=where,
            remedy="Copy the cluster's token ('ray get-auth-token' on its head) to"
            " ~/.ray/auth_token with mode 0600, or set RAY_AUTH_TOKEN_PATH to its file",
        )
    found = probe(where, token)
    if found.answer == "guarded":
        raise ClusterError(
            f"the cluster refuses the token of {token.source}",
            where=where,
            remedy="Replace it by the cluster's: 'ray get-auth-token' on its head",
        )
    return found
