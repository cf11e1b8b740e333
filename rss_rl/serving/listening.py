"""The listening socket and the web server."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rss_rl.errors import ConfigError

_CONNECTIONS = 200
"""Concurrent connections. One more takes the place of the one that has been idle longest; if none
is idle, it is answered with 503."""
_HEAD_S = 10.0
"""Time that a client has to send the head of a request."""
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


class _Impatient(H11Protocol):
    """HTTP that closes connections which send no whole head of a request in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room among the connections, and begin to wait for a request."""
        others = cast("set[_Impatient]", self.connections)
        open_ = [other for other in others if not other.transport.is_closing()]
        idle = [other for other in open_ if other.idle]
        if idle and len(open_) >= _CONNECTIONS - 1:
            min(idle, key=lambda other: other.since).transport.close()
        super().connection_made(transport)
        self.since = self.loop.time()
        self.loop.call_later(_HEAD_S, self._look)

    @property
    def idle(self) -> bool:
        """Whether there is no request that is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self.since = self.loop.time()

    def _look(self) -> None:
        """Close the connection if it has been idle for long, or else look again."""
        if self.transport.is_closing():
            return
        late = self.since + _HEAD_S - self.loop.time()
        if self.idle and late <= 0:
            self.transport.close()
        else:
            self.loop.call_later(max(late, 0.1), self._look)


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
        http=_Impatient,
        loop="asyncio",
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return uvicorn.Server(config)
