"""A web server in a thread that serves bytes as well, and as badly, as it is told."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_PIECE = 4096


@dataclass
class Served:
    """A file and how it is served; `cuts` and `statuses` are used up by one request each.

    cuts      bytes of the answer after which the connection ends
    statuses  error codes that are answered in place of the file
    pause     seconds after every 4096 bytes
    skips     bytes left out behind the place that a Range names
    """

    body: bytes = b""
    ranges: bool = True
    etag: str | None = '"first"'
    modified: str | None = None
    length: int | None = None
    redirect: str | None = None
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    pause: float = 0.0
    skips: int = 0


@dataclass
class FileServer:
    """Files by path, and what was asked for: path, Range and If-Range."""

    url: str = ""
    files: dict[str, Served] = field(default_factory=dict)
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)

    def ranges(self) -> list[str | None]:
        """The Range of each request."""
        return [given for _, given, _ in self.asked]


def _answer(handler: BaseHTTPRequestHandler, server: FileServer) -> None:
    path = handler.path.lstrip("/")
    given, condition = handler.headers.get("Range"), handler.headers.get("If-Range")
    server.asked.append((path, given, condition))
    served = server.files.get(path)
    if served is None or served.statuses:
        handler.send_response(served.statuses.pop(0) if served else 404)
        handler.send_header("Retry-After", "7")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    if served.redirect is not None:
        handler.send_response(302)
        handler.send_header("Location", served.redirect)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    current = condition in (None, served.etag, served.modified)
    start = int(re.findall(r"\d+", given)[0]) if given and served.ranges and current else 0
    if start >= len(served.body) > 0:
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{len(served.body)}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    _send(handler, served, start)


def _send(handler: BaseHTTPRequestHandler, served: Served, start: int) -> None:
    start += bool(start) and served.skips
    body, whole = served.body[start:], len(served.body)
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
    for name, value in (("ETag", served.etag), ("Last-Modified", served.modified)):
        if value is not None:
            handler.send_header(name, value)
    handler.send_header("Content-Length", str(served.length or len(body)))
    handler.end_headers()
    end = served.cuts.pop(0) if served.cuts else len(body)
    for place in range(0, min(end, len(body)), _PIECE):
        handler.wfile.write(body[place : min(place + _PIECE, end)])
        time.sleep(served.pause)
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
