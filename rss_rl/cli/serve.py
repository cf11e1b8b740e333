"""`rss-rl serve`: a page and a JSON interface for one trained model, or for two to compare."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from cyclopts import Parameter
from cyclopts.validators import Number

import rss_rl
from rss_rl.api.interruption import Interruption
from rss_rl.api.options import Device, TrustPlugins, Which
from rss_rl.api.terminal import say
from rss_rl.cli.show import console, echo
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rss_rl.inference.model import Model

_LOOPBACK = "127.0.0.1"


def serve(
    runs: Annotated[list[Path], Parameter(name="RUN|EXPORT")],
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

    Programs use `POST /predict`. `GET /schema` describes it, and `GET /health` says whether the
    server answers. Texts are not written to any file. The connection is not encrypted: to open
    the server to other machines, put a proxy that encrypts in front of it.

    Args:
        runs: Directory of a run or an export, or two that read the same kind of texts.
        port: Port; 0 picks a free one.
        host: Address to listen on, so that other machines can connect; requests then need a token.
            Default: only this machine.
        token: Token that requests need. Default with --host: a random one, which is printed.
        max_words: Longest text that is read, in words.

    Examples:
        `rss-rl serve runs/reviews` prints an address to open; Ctrl-C ends it.

        `rss-rl serve runs/reviews runs/reviews-sparse` shows two runs side by side.

        `rss-rl serve models/reviews --host 0.0.0.0 --port 9000` is for other machines,
        with a token.

        `curl localhost:8000/predict -H 'Content-Type: application/json'
        -d '{"examples": [{"texts": ["A dull film."], "share": 0.3}]}'`
    """
    _check(runs, token)
    try:
        from rss_rl.serving.app import LOOPBACK_HOSTS, make_app
        from rss_rl.serving.listening import listen, make_server
        from rss_rl.serving.payloads import Limits
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise ConfigError(
            f"serving needs the package {package}",
            remedy="Install it with `pip install 'rss-rl[serve]'`",
        ) from error

    if host is not None and token is None:
        token = secrets.token_urlsafe(24)
    hosts = LOOPBACK_HOSTS if host is None else ("*",)
    out = console(stderr=True)
    with out.status("opening"):
        models = _open(runs, which, trust_plugins, device)
    app = make_app(models, token=token, hosts=hosts, limits=Limits(words=max_words))
    with listen(host or _LOOPBACK, port) as listening:
        echo(f"serving {' and '.join(models)} at {_address(listening.getsockname(), token)}")
        say(out, "Press Ctrl-C to stop")
        with Interruption(lambda: None) as interruption:
            make_server(app).run(sockets=[listening])
    raise SystemExit(interruption.exit_code)


def _check(paths: Sequence[Path], token: str | None) -> None:
    if len(paths) > 2 or len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("give one run, or two different ones", where=" ".join(map(str, paths)))
    if token is not None and not (
        token.isascii() and token.isprintable() and token.split() == [token]
    ):
        raise ConfigError(
            "the token must be visible ASCII characters, without spaces", where="--token"
        )


def _open(
    paths: Sequence[Path], which: str | int, trust_plugins: bool, device: str
) -> dict[str, Model]:
    """The models by directory name, or by whole path if both names are the same."""
    found = [rss_rl.load(p, which, trust_plugins=trust_plugins, device=device) for p in paths]
    names = [path.resolve().name for path in paths]
    if len({*names}) < len(names):
        names = [str(path) for path in paths]
    kinds = {(model.labels.chooses, model.inputs.sentences) for model in found}
    if len(kinds) > 1:
        raise ConfigError(
            "they read different kinds of texts, so they cannot be compared",
            where=" and ".join(names),
            remedy="Name two runs that both read a text, a pair, or a passage and a question",
        )
    return dict(zip(names, found, strict=True))


def _address(bound: tuple[str, int], token: str | None) -> str:
    """The URL to open; has the machine's name if the server listens on all addresses."""
    host = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
    if ip_address(bound[0]).is_unspecified:
        host = socket.gethostname()
    fragment = "" if token is None else f"#token={quote(token, safe='')}"
    return f"http://{host}:{bound[1]}/{fragment}"
