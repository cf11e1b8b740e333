"""A web server in a thread that serves bytes as well, and as badly, as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """A file and how it is served.

    length    the Content-Length; None: that of the body; -1: not said
    redirect  address to which it is moved
    cuts      bytes after which the connection ends, used up by one request each
    """

    body: bytes = b""
    length: int | None = None
    redirect: str | None = None
    cuts: list[int] = field(default_factory=list)


@dataclass
class FileServer:
    """Files by path, and the paths that were asked for."""

    url: str = ""
    files: dict[str, Served] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


def _answer(handler: BaseHTTPRequestHandler, server: FileServer) -> None:
    path = handler.path.lstrip("/")
    server.asked.append(path)
    served = server.files.get(path)
    if served is None or served.redirect is not None:
        handler.send_response(302 if served else 404)
        handler.send_header("Location", served.redirect or "" if served else "")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    handler.send_response(200)
    if served.length != -1:
        handler.send_header("Content-Length", str(served.length or len(served.body)))
    handler.end_headers()
    handler.wfile.write(served.body[: served.cuts.pop(0) if served.cuts else len(served.body)])
    handler.close_connection = True


@contextmanager
def file_server() -> Iterator[FileServer]:
    """A server on a free port of this machine, until the block ends."""
    server = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                _answer(self, server)
            except ConnectionError:  # the client went away, as some tests want it to
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join(timeout=10)
