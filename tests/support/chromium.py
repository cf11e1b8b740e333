"""A real Chromium without a window, by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page, sync_playwright

_WAIT_MS = 90_000
_SAID = ("role", "name", "description", "value")


@contextmanager
def start_browser() -> Iterator[Browser]:
    """A page of a new Chromium or Chrome; the test is skipped where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    binary = next((path for name in names if (path := shutil.which(name))), None)
    if binary is None:
        pytest.skip("no Chromium is installed: pages are not tried in a browser")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield Browser(chromium.new_page())
        chromium.close()


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
    """A page.

    `problems` are its exceptions and console errors so far, `requests` the URLs it has asked for.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(_WAIT_MS)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda said: said.type == "error" and self.problems.append(said.text))

    def open(self, page: Path | str, width: int = 1280, height: int = 900) -> None:
        """Open a file or a URL and wait until it is loaded."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.goto(page if isinstance(page, str) else page.as_uri())

    def value(self, expression: str) -> Any:
        """What JavaScript makes of an expression, as JSON."""
        return self.page.evaluate(expression)

    def spoken(self) -> list[Spoken]:
        """What a screen reader is given, in the page's order."""
        session = self.page.context.new_cdp_session(self.page)
        nodes = {n["nodeId"]: n for n in session.send("Accessibility.getFullAXTree")["nodes"]}
        return list(_spoken(nodes, next(iter(nodes))))
