"""A real Chromium without a window, driven over a pair of pipes (Chrome DevTools Protocol)."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

WAIT_S = 90.0
_SAID = ("role", "name", "description", "value")


def start_browser(profile: Path) -> Browser:
    """A Chromium or Chrome with a new profile; the test is skipped where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    binary = next((path for name in names if (path := shutil.which(name))), None)
    if binary is None:
        pytest.skip("no Chromium is installed: pages are not tried in a browser")
    return Browser(binary, profile)


class Spoken(NamedTuple):
    """A node of the accessibility tree.

    text  all the text within it. properties: such as pressed, live, level
    """

    role: str
    name: str
    description: str
    value: str
    text: str
    properties: dict[str, Any]


def _spoken(nodes: dict[str, Any], at: str) -> Iterator[Spoken]:
    """A node and all below it but those that are left out of what is read."""
    node = nodes[at]
    if not node["ignored"]:
        said = (str(node.get(key, {}).get("value", "")) for key in _SAID)
        properties = {p["name"]: p["value"].get("value") for p in node.get("properties", ())}
        yield Spoken(*said, _text(nodes, at).strip(), properties)
    for child in node["childIds"]:
        if child in nodes:
            yield from _spoken(nodes, child)


def _text(nodes: dict[str, Any], at: str) -> str:
    node = nodes[at]
    if not node["ignored"] and node["role"]["value"] == "StaticText":
        return str(node["name"]["value"]) + " "
    return "".join(_text(nodes, child) for child in node["childIds"] if child in nodes)


class Browser:
    """One page of a Chromium of its own; a context manager that ends it.

    Args:
        profile: an empty directory for it.

    `problems` are the exceptions and console errors of the page so far, `requests` the URLs it has
    asked for.
    """

    def __init__(self, binary: str, profile: Path) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        read_by_it, self._out = os.pipe()
        self._in, written_by_it = os.pipe()
        # Out of the way of 3 and 4, which Chromium reads and writes.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in (read_by_it, written_by_it)]
        os.close(read_by_it)
        os.close(written_by_it)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--no-first-run", "--hide-scrollbars", f"--user-data-dir={profile}"]
        flags += ["--disable-background-networking", "--remote-debugging-pipe", "about:blank"]
        quiet = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        pipes = [(os.POSIX_SPAWN_DUP2, end, fd) for fd, end in enumerate(ends, start=3)]
        self._process = os.posix_spawn(
            binary, [binary, *flags], os.environ, file_actions=[quiet, *pipes], setpgroup=0
        )
        for end in ends:
            os.close(end)

    def __enter__(self) -> Self:
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        number = next(self._numbers)
        asked: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while (message := self._next()).get("id") != number:
            pass
        assert "error" not in message, (method, message["error"])
        result: dict[str, Any] = message["result"]
        return result

    def open(self, page: Path | str, width: int = 1280, height: int = 900) -> None:
        """Open a file or a URL and wait until it is loaded."""
        url = page if isinstance(page, str) else page.as_uri()
        self.resize(width, height)
        self.call("Page.navigate", url=url)
        loaded = "complete" + url.partition(":")[0] + ":"
        deadline = time.monotonic() + WAIT_S
        while self.value("document.readyState + location.protocol") != loaded:
            assert time.monotonic() < deadline, "the page does not load"

    def resize(self, width: int, height: int) -> None:
        """Make the window so many pixels wide and high."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def wait(self, condition: str) -> None:
        """Until a JavaScript expression is true."""
        deadline = time.monotonic() + WAIT_S
        while not self.value(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"never came true: {condition}"
            time.sleep(0.02)

    def type(self, text: str) -> None:
        """Type into the element that has the focus."""
        self.call("Input.insertText", text=text)

    def value(self, expression: str) -> Any:
        """What JavaScript makes of an expression, as JSON."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def spoken(self) -> list[Spoken]:
        """What a screen reader is given, in the page's order."""
        self.call("Accessibility.enable")
        nodes = {n["nodeId"]: n for n in self.call("Accessibility.getFullAXTree")["nodes"]}
        self.call("Accessibility.disable")
        return list(_spoken(nodes, next(iter(nodes))))

    def mouse(self, selector: str, *, click: bool = False) -> None:
        """Move the mouse onto the middle of an element, and click there."""
        x, y = self.value(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getClientRects()[0];"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name: str) -> None:
        """Press and release a key such as Enter, Space, Escape, Tab or ArrowRight."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "Space": 32}
        codes |= {"ArrowLeft": 37, "ArrowRight": 39}
        typed = {"Enter": "\r", "Space": " "}.get(name, "")
        for kind in ("keyDown" if typed else "rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=" " if name == "Space" else name,
                code=name,
                windowsVirtualKeyCode=codes[name],
                text=typed if kind == "keyDown" else "",
            )

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            read = os.read(self._in, 1 << 20)
            assert read, "Chromium has ended"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        output = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(output["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and output["entry"]["level"] == "error":
            self.problems.append(output["entry"]["text"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(output["request"]["url"])
        return message
