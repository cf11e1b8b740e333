"""Who works for a run that is started from the command line."""

from __future__ import annotations

import io

from rich.console import Console

from rss_rl.api.planning import workers
from rss_rl.config import parse_config

PHASE = {"name": "all", "supervised": True, "selection": "all", "steps": 1}
LOCAL = parse_config(
    {"data": "nowhere", "sampler": {"backend": "local"}, "phases": [PHASE]},
    where="test",
)


def said(address: str | None = None) -> str:
    out = io.StringIO()
    with workers(LOCAL, address, Console(file=out)):
        pass
    return out.getvalue()


def test_options_of_a_cluster_that_is_not_used_are_named() -> None:
    assert said() == ""
    assert said(address="head:6379").startswith("--address: no effect with sampler.backend=local")
