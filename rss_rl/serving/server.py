"""A socket, and a web server for it."""

from __future__ import annotations

import socket

import uvicorn
from starlette.types import ASGIApp

from rss_rl.errors import ConfigError

_CONNECTIONS = 200
"""At a time; beyond them 503."""
_GRACE_S = 5
"""For answers that are under way when the server is asked to end."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Args:
        host: name or address. port: 0 for one that is free.

    Raises:
        ConfigError: it cannot be listened there.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(
            f"cannot listen there ({error})",
            where=f"{host}:{port}",
            remedy="Give another --port, 0 for a free one, or an address of this machine as --host",
        ) from error


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server that answers from `run(sockets=[...])` on until SIGINT or SIGTERM.

    The signal then reaches the handler that was there before. Nothing of a request is logged:
    neither its address, nor its texts or its token.
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
