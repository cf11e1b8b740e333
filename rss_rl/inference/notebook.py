"""Small pieces of HTML for notebooks: styles stand inline, colours follow the notebook's own theme.

Text keeps the colour that it is shown in, and backgrounds are half transparent, so light and dark
themes both read. What is kept is bold on a shade of amber: no meaning hangs on a colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_KEPT = (
    "background:rgba(255,170,0,.35);color:inherit;font-weight:600;border-radius:3px;padding:0 2px"
)
_TABLE = "color:inherit;border-collapse:collapse"
_CELL = "padding:1px 10px 1px 0;text-align:left"
_BAR = "display:inline-block;height:.6em;background:rgba(120,130,150,.75)"
_MOST_CLASSES = 8


def kept_word(word: str, about: str = "") -> str:
    """A word that is selected; `about` it shows under the mouse."""
    return f'<mark style="{_KEPT}"{_title(about)}>{escape(word)}</mark>'


def left_word(word: str, about: str = "") -> str:
    """A word that is not."""
    return f'<span style="opacity:.75"{_title(about)}>{escape(word)}</span>'


def _title(about: str) -> str:
    return f' title="{escape(about)}"' if about else ""


def table(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in header)
    rows = (f"<tr>{''.join(map(_cell, row))}</tr>" for row in body)
    head = f"<thead><tr>{head}</tr></thead>"
    return f'<table style="{_TABLE}">{head}<tbody>{"".join(rows)}</tbody></table>'


def facts(title: str, about: Mapping[str, str]) -> str:
    """A title, and texts by name below it."""
    rows = "".join(
        f'<tr><th style="{_CELL}">{escape(name)}</th>{_cell(text)}</tr>'
        for name, text in about.items()
    )
    return f'<p><b>{escape(title)}</b></p><table style="{_TABLE}"><tbody>{rows}</tbody></table>'


def shares(found: Mapping[str, float]) -> str:
    """The largest of several shares in [0, 1] by name, each with a bar."""
    largest = sorted(found.items(), key=lambda pair: -pair[1])[:_MOST_CLASSES]
    rows = "".join(
        f'<tr>{_cell(name)}{_cell(f"{value:.1%}")}<td style="{_CELL}">'
        f'<span style="{_BAR};width:{100 * value:.0f}px"></span></td></tr>'
        for name, value in largest
    )
    return f'<table style="{_TABLE}"><tbody>{rows}</tbody></table>'


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{escape(text)}</td>'
