"""Pages from templates: HTML files that carry their style, script and data, and load nothing."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup


def asset(name: str) -> str:
    """The text of a file beside this one."""
    return files("rss_rl.pages").joinpath(name).read_text(encoding="utf-8")


_TEMPLATES = Environment(
    loader=FunctionLoader(asset),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def filled(template: str, **values: Any) -> str:
    """A template with its values, which are escaped unless they are `Markup`.

    `assets(NAME...)` in a template is the text of files beside it, as it is.
    """

    def assets(*names: str) -> Markup:
        return Markup("".join(asset(name) for name in names))

    return _TEMPLATES.get_template(template).render(assets=assets, **values)


def script_data(data: Any) -> Markup:
    """JSON that can stand within a script element, which ends at the first "</script"."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
