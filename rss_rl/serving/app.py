"""The web application and its server. Requests are neither stored nor logged."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import h11
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from rss_rl.errors import ConfigError
from rss_rl.inference.model import Model
from rss_rl.pages.assets import asset, filled
from rss_rl.serving.payloads import (
    Example,
    Limits,
    Pending,
    Problem,
    answer_examples,
    data_examples,
    model_shown,
    parse_body,
)
from rss_rl.version import VERSION

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Accepted Host headers for local use; any other name is refused, which stops DNS rebinding."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_OPEN = frozenset({"/", "/page.css", "/page.js", "/health"})
"""Paths that need no token, because they reveal nothing about a run."""
_CONNECTIONS = 200
"""At once; what comes in on a further one is answered with 503."""
_HEAD_S = 10
"""Time that the first line and the headers of a request have to arrive."""
_GRACE_S = 5
"""Time that pending responses have to finish at shutdown."""


def make_app(
    model: Model,
    name: str,
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = LOOPBACK_HOSTS,
    limits: Limits | None = None,
) -> ASGIApp:
    """The application.

    Args:
        name: of the model.
        token: required from requests; None for no authentication.
        hosts: allowed Host headers, `("*",)` for any.
    """
    limits = Limits() if limits is None else limits
    examples = data_examples(model) if token is None else []  # others may not know the data
    turns = _Turns(model, limits)
    routes = [
        Route("/", _always(filled("serve.html", version=VERSION), HTMLResponse)),
        Route("/page.css", _joined("text/css", "look.css", "words.css", "serve.css")),
        Route("/page.js", _joined("text/javascript", "theme.js", "words.js", "serve.js")),
        Route("/health", _always({"status": "ok"})),
        Route("/model", _always(model_shown(model, name, examples))),
        Route("/predict", partial(_predict, limits, turns), methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {
        Problem: _problem_response,
        HTTPException: _http_error_response,
        ClientDisconnect: _disconnect_response,
        Exception: _server_error_response,
    }
    middleware = [Middleware(_Hosts, allowed=hosts)]
    if token is not None:
        middleware.append(Middleware(_Guard, token=token))
    return _Secured(Starlette(routes=routes, exception_handlers=handlers, middleware=middleware))


class _Turns:
    """One call of the model at a time, in a worker thread, so that the event loop stays free; what
    waits for its turn is read together, which takes little longer than one of them."""

    def __init__(self, model: Model, limits: Limits) -> None:
        self._model, self._limits, self._lock = model, limits, anyio.Lock()
        self._waiting: list[Pending] = []

    async def answer(self, example: Example, field: str) -> dict[str, Any]:
        """The answer to one example; field: its path in the request.

        Raises:
            Problem: see `answer_examples`; or 503, the queue is full or the wait took too long.
        """
        busy = Problem(503, "busy with other requests; try again in a few seconds")
        if self._lock.statistics().tasks_waiting >= self._limits.waiting:
            raise busy
        self._waiting.append(pending := Pending(example, field))
        try:
            with anyio.move_on_after(self._limits.wait_s) as patience:
                await self._lock.acquire()
        finally:
            if not pending.taken:
                self._waiting.remove(pending)
        if patience.cancelled_caught:
            raise busy
        try:
            if not pending.taken:
                together, self._waiting = [pending, *self._waiting], []
                for one in together:
                    one.taken = True
                await to_thread.run_sync(answer_examples, self._model, together, self._limits)
        finally:
            self._lock.release()
        return pending.result()


async def _predict(limits: Limits, turns: _Turns, request: Request) -> Response:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # other types skip the CORS preflight, so any site could send
        raise Problem(415, "the body must be JSON: Content-Type: application/json")
    body = parse_body(await _body(request, limits), limits)
    # One after another, so that other requests have their turns.
    answers = [await turns.answer(x, f"examples.{n}") for n, x in enumerate(body.examples)]
    return JSONResponse({"examples": answers})


async def _body(request: Request, limits: Limits) -> bytes:
    body = bytearray()
    with anyio.move_on_after(limits.wait_s) as patience:
        async for part in request.stream():
            body += part
            if len(body) > limits.body_bytes:
                raise Problem(413, f"the body has more than {limits.body_bytes:,} bytes")
    if patience.cancelled_caught:
        raise Problem(408, "the body did not arrive in time")
    return bytes(body)


def _always(
    content: Any, answer: Callable[..., Response] = JSONResponse
) -> Callable[[Request], Awaitable[Response]]:
    async def respond(_: Request) -> Response:
        return answer(content)

    return respond


def _joined(kind: str, *names: str) -> Callable[[Request], Awaitable[Response]]:
    text = "".join(asset(name) for name in names)
    return _always(text, partial(Response, media_type=kind))


def _refusal(status: int, message: str, field: str = "") -> JSONResponse:
    return JSONResponse({"error": message, "field": field}, status)


async def _problem_response(_: Request, problem: Problem) -> Response:
    return _refusal(problem.status, problem.message, problem.field)


async def _http_error_response(_: Request, error: HTTPException) -> Response:
    """Unknown path or method."""
    refusal = _refusal(error.status_code, error.detail)
    refusal.headers.update(error.headers or {})
    return refusal


async def _disconnect_response(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=400)


async def _server_error_response(_: Request, error: Exception) -> Response:
    return _refusal(500, "internal server error; see the server's log")


class _Hosts:
    """Middleware that refuses other Host headers."""

    def __init__(self, app: ASGIApp, allowed: tuple[str, ...]) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answers: list[ASGIApp] = [_refusal(400, "the Host header names another machine")]

        async def passed(*_: Any) -> None:
            answers.append(self._app)

        async def unsent(_: Message) -> None:
            """In place of the middleware's own refusal, which is no JSON."""

        check = TrustedHostMiddleware(passed, self._allowed, www_redirect=False)
        await check(scope, receive, unsent)
        await answers[-1](scope, receive, send)


class _Guard:
    """Middleware that requires the token on all paths except the open ones."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._wanted = app, f"bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN:
            scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
            sent = f"{scheme.lower()} {token.strip()}".encode()
            if not secrets.compare_digest(sent, self._wanted):
                refusal = _refusal(401, "a token is needed: Authorization: Bearer TOKEN")
                refusal.headers["WWW-Authenticate"] = "Bearer"
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Secured:
    """Middleware that sets the security headers on every response, including errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class _Connection(H11Protocol):
    """Refuses in JSON what is no request, and what waits for ever or beside too many others."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _CONNECTIONS:
            busy = _refusal(503, "busy with other connections; try again in a few seconds")
            busy.headers["Connection"] = "close"
            self.app = _Secured(busy)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._unset_deadline()
        elif self._deadline is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_deadline()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(_refusal(400, msg))

    def _await_head(self) -> None:
        late = _refusal(408, "the request did not arrive in time")
        self._deadline = self.loop.call_later(_HEAD_S, self._refuse, late)

    def _unset_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, refusal: Response) -> None:
        refusal.headers.update({**_HEADERS, "Connection": "close"})
        head = h11.Response(status_code=refusal.status_code, headers=refusal.raw_headers)
        with suppress(h11.LocalProtocolError):  # an answer has begun already
            for event in (head, h11.Data(data=bytes(refusal.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


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
        http=_Connection,
        loop="asyncio",
        timeout_graceful_shutdown=_GRACE_S,
    )
    return uvicorn.Server(config)
