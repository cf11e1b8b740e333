"""`rss-rl serve` as it is typed: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from invoking import invoke
from readers import REVIEWS
from tiny_runs import command_line

from rss_rl.inference.model import load_model

WAIT_S = 100
Started = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    """Starts the command and waits for its line; ends it at last."""
    begun: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> tuple[subprocess.Popen[str], str]:
        process = command_line("serve", *arguments, "--port", 0, cwd=tmp_path)
        begun.append(process)
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], WAIT_S)
        assert ready, "it does not begin"
        return process, process.stdout.readline()

    yield run
    for process in begun:
        process.kill()
        process.communicate()


def asked(url: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers |= {} if body is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return json.load(answer)


def test_it_answers_as_the_model_does(run: Path, start: Started) -> None:
    process, line = start(run)
    found = re.fullmatch(r"serving run at (http://127\.0\.0\.1:\d+/)\n", line)
    assert found is not None, line
    assert asked(found[1] + "model")["name"] == "run"
    (answer,) = asked(found[1] + "predict", {"examples": [{"texts": [REVIEWS[0]]}]})["examples"]
    (said,) = load_model(run).predict([REVIEWS[0]])
    assert answer == json.loads(json.dumps(said.to_dict()))
    before = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 143
    assert time.monotonic() - before < 20
    assert process.stderr is not None
    printed = process.stderr.read()
    assert "Traceback" not in printed
    assert "dull" not in printed


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_with_a_host_a_token_is_needed(host: str, run: Path, start: Started) -> None:
    own = "a+b&c%" if host == "0.0.0.0" else None
    process, line = start(run, "--host", host, *([] if own is None else ["--token", own]))
    found = re.search(r"http://(\S+):(\d+)/#token=(\S+)\n", line)
    assert found is not None, line
    assert found[1] != "0.0.0.0"  # no address to open
    token = urllib.parse.parse_qs(f"token={found[3]}")["token"][0]  # as the page reads it
    assert token == own or (own is None and len(token) == 32)
    address = f"http://127.0.0.1:{found[2]}/"
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        asked(address + "model")
    refused.value.close()
    assert asked(address + "model", Authorization=f"Bearer {token}")["name"]
    assert asked(address + "health") == {"status": "ok"}
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 130
    assert process.stderr is not None
    assert token not in process.stderr.read()


def refused(*arguments: object) -> str:
    done = invoke(["serve", *map(str, arguments)])
    assert done.exit_code == 2, (done.output, done.exception)
    return done.output


def test_what_cannot_be_served_is_said(run: Path, tmp_path: Path) -> None:
    assert "--token: the token must be" in refused(run, "--token", "two words")
    assert "nowhere" in refused(tmp_path / "nowhere")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}: cannot listen" in refused(run, "--port", port)
    assert "cannot listen" in refused(run, "--host", "no such name")


def test_without_its_packages_it_says_how_to_get_them(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "from rss_rl.cli.main import app\n"
        "app(['serve', 'runs/x'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: serving needs the package starlette."
        " Install it with `pip install 'rss-rl[serve]'`\n"
    )
