"""The token of a Ray cluster, and whether a cluster checks one.

Anyone with the token can run arbitrary code on the cluster. It is never printed, nor written to a
configuration, log or checkpoint. A cluster is first asked without it: only a refusal proves that
tokens are checked, and only then the token is sent. An answer that is neither a refusal nor a
success is not from a Ray cluster.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, NamedTuple

import grpc

from rss_rl.errors import ClusterError

MODE_VARIABLE = "RAY_AUTH_MODE"
TOKEN_VARIABLE = "RAY_AUTH_TOKEN"
PATH_VARIABLE = "RAY_AUTH_TOKEN_PATH"
_TIMEOUT_S, _RETRY_S = 2.5, 0.5
_CHECK_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_SILENCES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True)
class Token:
    """An available token.

    source  the variable or file it comes from, for messages
    path    of the file; None if a variable holds the token itself
    secret  the token, excluded from the repr
    """

    source: str
    path: Path | None
    secret: str = field(repr=False)

    @property
    def is_private(self) -> bool:
        """Whether only its owner can read the file."""
        others = stat.S_IRWXG | stat.S_IRWXO
        return self.path is None or not self.path.stat().st_mode & others


class Answer(NamedTuple):
    """A cluster's answer.

    kind    guarded: refused; open: accepted; silent: none; foreign: not of a Ray cluster
    detail  of an error
    """

    kind: Literal["guarded", "open", "silent", "foreign"]
    detail: str = ""


Ask = Callable[[str, Token | None], Answer]


def switched_off() -> bool:
    """Whether RAY_AUTH_MODE disables tokens.

    Ray decides by it alone whether to send one, and reads it when it is imported.
    """
    return os.environ.get(MODE_VARIABLE, "token").lower() == "disabled"


def find_token() -> Token | None:
    """The token Ray would use: of RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token.

    Raises:
        ClusterError: a token file exists but cannot be used.
    """
    if secret := os.environ.get(TOKEN_VARIABLE, "").strip():
        return Token(TOKEN_VARIABLE, None, secret)
    named = os.environ.get(PATH_VARIABLE)
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    source = f"{PATH_VARIABLE} ({named})" if named else str(path)
    try:
        secret = path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(
            f"the token file cannot be read: {error}",
            where=source,
            remedy="Give yourself read access, or set RAY_AUTH_TOKEN_PATH to another file",
        ) from error
    if not secret:
        raise ClusterError("the token file is empty", where=source, remedy="Remove it")
    return Token(source, path, secret)


def ensure_token() -> None:
    """Give a cluster that this process starts a token: an available one that nobody else can read,
    or a new one, which only this process and its children know."""
    token = find_token()
    if token is None or not token.is_private:
        os.environ[TOKEN_VARIABLE] = secrets.token_hex(32)


def ask_head(address: str, token: Token | None = None) -> Answer:
    """Ask the head's control service at host:port whether it is alive; at most 2.5 s.

    Ray's own client would send a token that it finds; this call is made without one.
    """
    metadata = [("authorization", f"Bearer {token.secret}")] if token else None
    with _channel(address) as channel:
        check_alive = channel.unary_unary(_CHECK_ALIVE)  # an empty request is no bytes
        try:
            check_alive(b"", timeout=_TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() in _REFUSALS:
                return Answer("guarded")
            kind: Any = "silent" if error.code() in _SILENCES else "foreign"
            return Answer(kind, str(error.details() or error.code()))
    return Answer("open")


def _channel(address: str) -> grpc.Channel:
    options = [("grpc.enable_http_proxy", 0)]
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return grpc.insecure_channel(address, options)
    names = ("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_SERVER_CERT")
    try:
        credentials = grpc.ssl_channel_credentials(
            *(Path(os.environ[n]).read_bytes() for n in names)
        )
    except (KeyError, OSError) as error:
        raise ClusterError(
            f"RAY_USE_TLS is set, and a certificate is missing: {error}",
            remedy=f"Set {', '.join(names)} to files",
        ) from error
    return grpc.secure_channel(address, credentials, options)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask_dashboard(url: str, token: Token | None = None) -> Answer:
    """Request the list of jobs from the Jobs API at `url`; at most 2.5 s."""
    headers = {"Authorization": f"Bearer {token.secret}"} if token else {}
    request = urllib.request.Request(f"{url}/api/jobs/", headers=headers)
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S) as reply:
            jobs = json.load(reply)
    except urllib.error.HTTPError as error:
        refused = error.code in (401, 403)
        return Answer("guarded" if refused else "foreign", f"HTTP status {error.code}")
    except OSError as error:
        return Answer("silent", str(getattr(error, "reason", error)))
    except (HTTPException, ValueError) as error:
        return Answer("foreign", f"{type(error).__name__} in its response")
    return Answer("open") if isinstance(jobs, list) else Answer("foreign", "no list of jobs")


def check(ask: Ask, where: str, *, timeout_s: float) -> Token | None:
    """Wait for a cluster, and ensure that it checks tokens and accepts ours.

    Args:
        ask: `ask_head` or `ask_dashboard`. where: its address.
        timeout_s: how long to wait for an answer.

    Returns:
        The token that may be sent; None for a cluster that checks none, which only the user's
        RAY_AUTH_MODE=disabled permits.

    Raises:
        ClusterError: no response, no token is checked, or ours is wrong or missing.
    """
    deadline = time.monotonic() + timeout_s
    while (answer := ask(where, None)).kind == "silent" and time.monotonic() < deadline:
        time.sleep(_RETRY_S)
    if answer.kind == "silent":
        raise ClusterError(
            f"no Ray cluster answered within {timeout_s:.0f} s ({answer.detail})",
            where=where,
            remedy="Check that it runs, the port (head 6379, dashboard 8265), and firewalls",
        )
    if answer.kind == "open":
        if switched_off():
            return None
        raise ClusterError(
            "the cluster checks no token: anyone who can reach it can run code on it, with access"
            " to what you send there",
            where=where,
            remedy="Create a token ('ray get-auth-token --generate'), copy it to every node and"
            " start them with RAY_AUTH_MODE=token; or accept it with RAY_AUTH_MODE=disabled",
        )
    token = find_token()
    if answer.kind == "guarded":
        if token is None or switched_off():
            raise ClusterError(
                "the cluster requires a token, and there is none here",
                where=where,
                remedy="Copy the cluster's token ('ray get-auth-token' on its head) to"
                " ~/.ray/auth_token with mode 0600, or set RAY_AUTH_TOKEN_PATH to its file; do not"
                " set RAY_AUTH_MODE=disabled",
            )
        answer = ask(where, token)
        if answer.kind == "guarded":
            raise ClusterError(
                f"the cluster refuses the token of {token.source}",
                where=where,
                remedy="Replace it by the cluster's: 'ray get-auth-token' on its head",
            )
    if answer.kind != "open":
        raise ClusterError(
            f"the server there is not a Ray cluster ({answer.detail})",
            where=where,
            remedy="Check the address; TLS needs RAY_USE_TLS=1 here, too",
        )
    return token
