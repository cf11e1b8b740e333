"""HTML fragments for notebooks, with inline styles.

Text inherits its colour and backgrounds are translucent, so both light and dark themes work. Kept
words are bold on amber: no meaning depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

_KEPT = (
    "background:rgba(255,170,0,.35);color:inherit;font-weight:600;border-radius:3px;padding:0 2px"
)
_TABLE = "color:inherit;border-collapse:collapse"
_CELL = "padding:1px 10px 1px 0;text-align:left"
_BAR = "display:inline-block;height:.6em;background:rgba(120,130,150,.75)"
_MOST_CLASSES = 8


def marked_word(word: str, kept: bool, about: str) -> str:
    """A word, marked if it is selected; `about` is its tooltip."""
    title = f' title="{escape(about)}"' if about else ""
    tag, style = ("mark", _KEPT) if kept else ("span", "opacity:.75")
    return f'<{tag} style="{style}"{title}>{escape(word)}</{tag}>'


def facts(title: str, about: Mapping[str, str]) -> str:
    """A title and a table of names and values."""
    rows = (
        f'<tr><th style="{_CELL}">{escape(name)}</th>{_cell(text)}</tr>'
        for name, text in about.items()
    )
    return f"<p><b>{escape(title)}</b></p>{_table(rows)}"


def shares(found: Mapping[str, float]) -> str:
    """The largest of some named shares in [0, 1], each with a bar."""
    return _table(
        f'<tr>{_cell(name)}{_cell(f"{value:.1%}")}<td style="{_CELL}">'
        f'<span style="{_BAR};width:{100 * value:.0f}px"></span></td></tr>'
        for name, value in sorted(found.items(), key=lambda pair: -pair[1])[:_MOST_CLASSES]
    )


def _table(rows: Iterable[str]) -> str:
    return f'<table style="{_TABLE}"><tbody>{"".join(rows)}</tbody></table>'


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{escape(text)}</td>'
