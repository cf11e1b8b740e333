"""Page templates: self-contained HTML files with inline style, script and data."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup


def asset(name: str) -> str:
    """The text of a file in this package."""
    return files("rss_rl.pages").joinpath(name).read_text(encoding="utf-8")


_TEMPLATES = Environment(
    loader=FunctionLoader(asset),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def filled(template: str, **values: Any) -> str:
    """Render a template; values are escaped unless they are `Markup`.

    `assets(NAME...)` in a template inserts files of this package verbatim.
    """

    def assets(*names: str) -> Markup:
        return Markup("".join(asset(name) for name in names))

    return _TEMPLATES.get_template(template).render(assets=assets, **values)


def script_data(data: Any) -> Markup:
    """JSON for use within a script element, with "<" escaped so that it cannot end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
