"""The listening socket and the web server."""

from __future__ import annotations

import socket

import uvicorn
from starlette.types import ASGIApp

from rss_rl.errors import ConfigError

_CONNECTIONS = 200
"""Concurrent connections; more are answered with 503."""
_GRACE_S = 5
"""Time that pending responses have to finish at shutdown."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Args:
        host: name or address. port: 0 for a free one.

    Raises:
        ConfigError: the address cannot be bound.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(
            f"cannot listen ({error})",
            where=f"{host}:{port}",
            remedy="Give another --port, 0 for a free one, or an address of this machine as --host",
        ) from error


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server that `run(sockets=[...])` starts, until SIGINT or SIGTERM.

    The signal is then passed on to the previous handler. Requests are not logged: neither client
    address, texts nor token.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return uvicorn.Server(config)
