"""What tests put where a stranger's file could name it: it tells when it is imported or called."""

from __future__ import annotations

from rss_rl.components import Component
from rss_rl.policies.rss import RSS

calls: list[object] = []

POLICY = Component(
    kind="policy",
    name="stranger",
    help="RSS under another name.",
    build=lambda setup, options: (calls.append("built"), RSS.build(setup, options))[1],
    options=RSS.options,
    capabilities=RSS.capabilities,
)


def function(*given: object, **named: object) -> None:
    """No component."""
    calls.append((given, named))
