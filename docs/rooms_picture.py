"""The picture of the rooms as SVG: GitHub draws it from Mermaid, our site loads no such program."""

from __future__ import annotations

import re
from itertools import pairwise
from statistics import mean
from xml.etree import ElementTree as ET

ARROW = re.compile(r"^ *(\w+) --> (\w+)$", re.MULTILINE)
BLOCK = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
_WIDE, _HIGH = 128, 30
"""Of a box; names have at most fifteen letters."""
_COLUMN, _ROW = 150, 62
_SWEEPS = 12


def with_pictures(page: str) -> str:
    """A page whose graphs are drawn."""
    return BLOCK.sub(lambda found: picture(ARROW.findall(found[1])), page)


def picture(arrows: list[tuple[str, str]]) -> str:
    """The graph in rows, each box below all that lead to it; arrows go from row to row.

    An arrow that passes a row has a place of its own there, so that it crosses no box. A test of
    the rooms sees to it that no arrows form a ring.
    """
    rows, paths = _rows(arrows)
    place = {node: float(at) for row in rows for at, node in enumerate(row)}
    steps = {step for path in paths for step in pairwise(path)}
    near = {node: [a if b == node else b for a, b in steps if node in (a, b)] for node in place}
    for _ in range(_SWEEPS):
        for row in rows:
            row.sort(key=lambda node: mean(place[other] for other in near[node]))
            # Around a common middle, so that rows of few boxes are centred.
            place |= {node: at - (len(row) - 1) / 2 for at, node in enumerate(row)}
    return _drawn(rows, paths, place)


def _rows(arrows: list[tuple[str, str]]) -> tuple[list[list[str]], list[list[str]]]:
    """The boxes and passing arrows of each row, and each arrow as a path over them."""
    names = list(dict.fromkeys(name for arrow in arrows for name in arrow))
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for above, below in arrows:
            depth[below] = max(depth[below], depth[above] + 1)
    rows: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name in names:
        rows[depth[name]].append(name)
    paths = []
    for above, below in arrows:
        passed = range(depth[above] + 1, depth[below])
        passing = [f"{above} {below} {row}" for row in passed]
        for row, name in zip(passed, passing, strict=True):
            rows[row].append(name)
        paths.append([above, *passing, below])
    return rows, paths


def _drawn(rows: list[list[str]], paths: list[list[str]], place: dict[str, float]) -> str:
    left, right = min(place.values()), max(place.values())
    width, height = (right - left) * _COLUMN + _WIDE + 4, (len(rows) - 1) * _ROW + _HIGH + 4
    middle = {
        node: (2 + _WIDE / 2 + (place[node] - left) * _COLUMN, 2 + _HIGH / 2 + number * _ROW)
        for number, row in enumerate(rows)
        for node in row
    }
    svg = ET.Element("svg", viewBox=f"0 0 {width:g} {height:g}", role="img", fill="none")
    svg.set("aria-label", "; ".join(f"{path[0]} imports {path[-1]}" for path in paths))
    svg.set("style", "display: block; width: 100%; height: auto; margin: 1em 0")
    svg.set("stroke", "currentColor")
    head = ET.SubElement(svg, "marker", id="arrow", viewBox="0 0 8 8", refX="7", refY="4")
    head.set("orient", "auto")
    head.set("markerWidth", "8")
    head.set("markerHeight", "8")
    ET.SubElement(head, "path", d="M1 1 7 4 1 7")
    for path in paths:
        line = "M{:g} {:g}".format(*_edge(middle[path[0]], 1))
        for start, end in pairwise(path):
            (x, y), (to_x, to_y) = _edge(middle[start], 1), _edge(middle[end], -1)
            bend = (y + to_y) / 2
            line += f" L{x:g} {y:g} C{x:g} {bend:g} {to_x:g} {bend:g} {to_x:g} {to_y:g}"
        made = ET.SubElement(svg, "path", d=line, opacity=".6")
        made.set("marker-end", "url(#arrow)")
    for x, y, name in ((*at, node) for node, at in middle.items() if " " not in node):
        box = {"x": x - _WIDE / 2, "y": y - _HIGH / 2, "width": _WIDE, "height": _HIGH, "rx": 6}
        ET.SubElement(svg, "rect", {key: f"{value:g}" for key, value in box.items()})
        text = ET.SubElement(svg, "text", x=f"{x:g}", y=f"{y + 5:g}", fill="currentColor")
        text.text = name
        text.set("stroke", "none")
        text.set("text-anchor", "middle")
        text.set("font-size", "14")
    return ET.tostring(svg, encoding="unicode")


def _edge(middle: tuple[float, float], side: int) -> tuple[float, float]:
    """Where arrows leave a box (side 1: below) or reach it (-1: above)."""
    return middle[0], middle[1] + side * _HIGH / 2
