"""Components and other objects that tests plug in as `plugged:OBJECT`."""

from __future__ import annotations

from pydantic import Field

from rss_rl.components import Component, Options

calls: list[object] = []


class GreetingOptions(Options):
    times: int = Field(default=1, ge=1)
    loud: bool = False


GREETING = Component(
    kind="encoder",
    name="greeting",
    help="Says hello.",
    build=lambda setup, options: "hello " * options.times,
    options=GreetingOptions,
    capabilities=lambda options: frozenset({"kept_only", *(["gates"] * options.loud)}),
)


def function(*given: object) -> None:
    """No component: whoever calls it is found out."""
    calls.append(given)
