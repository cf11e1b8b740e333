"""Serve a trained model behind a page and an address for programs."""

from __future__ import annotations

import asyncio
import secrets
import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from cyclopts import Parameter
from cyclopts.validators import Number

import rss_rl
from rss_rl.api.interruption import Interruption
from rss_rl.api.options import (
    Device,
    ModelFolder,
    TrustPlugins,
    Which,
)
from rss_rl.api.terminal import SafeConsole, busy, say
from rss_rl.errors import ConfigError

_LOOPBACK = "127.0.0.1"


def serve(
    run: ModelFolder,
    *,
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 8000,
    host: Annotated[str | None, Parameter(metavar="ADDRESS")] = None,
    token: Annotated[str | None, Parameter(env_var="RSS_RL_SERVE_TOKEN")] = None,
    max_words: Annotated[int, Parameter(validator=Number(gte=1))] = 2000,
    device: Device = "cpu",
    which: Which = "best",
    trust_plugins: TrustPlugins = False,
) -> None:
    """Serve a page on which you type a text, choose the share of words kept, click words in and
    out, and see the prediction.

    Programs use `POST /predict`, and `GET /health` says whether the server answers. Texts are not
    written to any file. The connection is not encrypted: to open the server to other machines, put
    a proxy that encrypts in front of it.

    Args:
        run: Directory of a run or of an export.
        port: Port; 0 picks a free one.
        host: Address to listen on, so that other machines can connect; requests then need a token.
            Default: only this machine.
        token: Token that requests need. Default with --host: a random one, which is printed.
        max_words: Longest text that is read, in words.

    Examples:
        `rss-rl serve runs/reviews` prints an address to open; Ctrl-C ends it.

        `rss-rl serve models/reviews --host 0.0.0.0 --port 9000` is for other machines,
        with a token.

        `curl localhost:8000/predict -H 'Content-Type: application/json'
        -d '{"examples": [{"texts": ["A dull film."], "share": 0.3}]}'`
    """
    if token is not None and not (
        token.isascii() and token.isprintable() and token.split() == [token]
    ):
        raise ConfigError(
            "the token must be visible ASCII characters, without spaces", where="--token"
        )
    try:
        from rss_rl.serving.app import LOOPBACK_HOSTS, listen, make_app, make_server
        from rss_rl.serving.payloads import Limits
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise ConfigError(
            f"serving needs the package {package}",
            remedy="Install it with `pip install 'rss-rl[serve]'`",
        ) from error

    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise ConfigError(
            "an event loop runs in this thread, as in a notebook, and serving would block it",
            where="serve",
            remedy="Use `rss-rl serve` in a terminal, or `await asyncio.to_thread(rss_rl.serve,"
            " run)`",
        )
    if host is not None and token is None:
        token = secrets.token_urlsafe(24)
    hosts = LOOPBACK_HOSTS if host is None else ("*",)
    out, name = SafeConsole(stderr=True), Path(run).resolve().name
    with busy(out, "opening"):
        model = rss_rl.load(run, which, trust_plugins=trust_plugins, device=device)
    app = make_app(model, name, token=token, hosts=hosts, limits=Limits(words=max_words))
    with listen(host or _LOOPBACK, port) as listening:
        say(SafeConsole(), f"serving {name} at {_address(listening.getsockname(), token)}")
        say(out, "Press Ctrl-C to stop")
        with Interruption("stopping") as interruption:
            make_server(app).run(sockets=[listening])
    raise SystemExit(interruption.exit_code)


def _address(bound: tuple[str, int], token: str | None) -> str:
    """The URL to open; has the machine's name if the server listens on all addresses."""
    host = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
    if ip_address(bound[0]).is_unspecified:
        host = socket.gethostname()
    fragment = "" if token is None else f"#token={quote(token, safe='')}"
    return f"http://{host}:{bound[1]}/{fragment}"
