"""What is no request, comes too late or beside too many others is refused in JSON, and let go."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from readers import reader

import rss_rl
from rss_rl.errors import ConfigError
from rss_rl.serving import app
from rss_rl.serving.app import listen, make_app, make_server

GOOD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server with little patience and room."""
    monkeypatch.setattr(app, "_HEAD_S", 1.0)
    monkeypatch.setattr(app, "_CONNECTIONS", 3)
    server = make_server(make_app(reader("classes", seed=3), "one"))
    with listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)


def connected(port: int, sent: bytes) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), timeout=20)
    found.sendall(sent)
    return found


def answer(connection: socket.socket) -> tuple[int, Any]:
    """Status and body of what comes until the connection ends."""
    with connection, connection.makefile("rb") as stream:
        head, _, body = stream.read().partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    assert b"nosniff" in head
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: elsewhere.org\r\nConnection: close\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: local", 408),
        (b"", 408),
    ],
)
def test_what_is_no_request_is_refused_in_json_and_let_go(
    port: int, sent: bytes, status: int
) -> None:
    found, body = answer(connected(port, sent))
    assert found == status
    assert body["error"]


def test_a_second_request_of_a_connection_has_to_come_in_time_too(port: int) -> None:
    connection = connected(port, GOOD)
    assert b"200 OK" in connection.recv(1 << 16)
    connection.sendall(GOOD[:-2])
    assert answer(connection)[0] == 408


def test_half_sent_requests_do_not_hold_the_server(port: int) -> None:
    held = [connected(port, GOOD[:-2]) for _ in range(3)]
    status, body = answer(connected(port, GOOD))
    assert (status, body["field"]) == (503, "")
    assert [answer(each)[0] for each in held] == [408] * 3
    last = GOOD[:-2] + b"Connection: close\r\n\r\n"
    assert answer(connected(port, last)) == (200, {"status": "ok"})


def test_within_an_event_loop_serving_is_refused_at_once() -> None:
    async def within() -> None:
        rss_rl.serve("no such run")

    with pytest.raises(ConfigError, match="event loop.*to_thread"):
        asyncio.run(within())
