"""Clients that hold connections and send nothing do not keep others out."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rss_rl.serving import listening
from rss_rl.serving.listening import listen, make_server

HELD = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Half"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server with few connections."""
    monkeypatch.setattr(listening, "_CONNECTIONS", 4)
    server = make_server(answer)
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(30)


def held(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(HELD)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Waits for an end, or for bytes."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def status(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/")
    found = connection.getresponse().status
    connection.close()
    return found


def test_the_connection_that_is_idle_longest_makes_room(port: int) -> None:
    connections = [held(port) for _ in range(6)]
    assert status(port) == 200
    assert is_closed(connections[0])
    connections[-1].sendall(b": y\r\n\r\n")  # the rest of a request that came late
    assert connections[-1].recv(12) == b"HTTP/1.1 200"
    for connection in connections:
        connection.close()


def test_half_a_request_is_not_waited_for(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_HEAD_S", 0.2)
    with held(port) as late:
        assert is_closed(late)
