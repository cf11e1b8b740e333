"""SVG charts for pages: lines with bands, points with whiskers, in the page's colours.

Every chart has a title, labelled axes and a description for screen readers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree as ET

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from rss_rl.types import Array

COLOURS = 4
"""Number of colours in the style sheet; series numbers wrap around."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 24.0, 34.0, 44.0
_TICKS = 5
_LETTER = 7.0
"""Mean width of a letter in a label, in chart units."""
_ROW = 11.0
"""Height of a line of labels."""
_DOT = 3.5
"""Radius of a point's mark."""
_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Line:
    """Points joined in order; `band` has a low and a high value for each.

    series  number of its colour, from 0. dashed: for a comparison
    gaps    indices of points that are not joined to the previous one
    """

    label: str
    points: Sequence[tuple[float, float]]
    series: int = 0
    dashed: bool = False
    band: Sequence[tuple[float, float]] = ()
    gaps: Sequence[int] = ()

    def parts(self) -> list[slice]:
        """Slices of points that are joined."""
        return list(itertools.starmap(slice, itertools.pairwise([0, *self.gaps, None])))


@dataclass(frozen=True)
class Point:
    """A mark, its label, and the half lengths of its whiskers; 0 for none.

    named  write the label next to it if there is room; it is always the tooltip
    """

    x: float
    y: float
    label: str = ""
    series: int = 0
    x_spread: float = 0.0
    y_spread: float = 0.0
    named: bool = True


@dataclass(frozen=True)
class Level:
    """A reference line: a target value on y, or the beginning of something on x."""

    at: float
    label: str
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True)
class Chart:
    """The contents of a chart.

    x_format, y_format  format specifications of ticks
    logarithmic         x axis. shares: limit y, its ticks and bands to [0, 1]
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line] = ()
    points: Sequence[Point] = ()
    levels: Sequence[Level] = ()
    x_format: str = ",.0f"
    y_format: str = ".3g"
    logarithmic: bool = False
    shares: bool = False
    width: float = 520.0
    height: float = 300.0

    def values(self, axis: int) -> list[float]:
        """All values shown along x (0) or y (1)."""
        found = [point[axis] for line in self.lines for point in line.points]
        if axis == 1:
            found += [end for line in self.lines for pair in line.band for end in pair]
        for point in self.points:
            middle = (point.x, point.y)[axis]
            reach = (point.x_spread, point.y_spread)[axis]
            found += [middle - reach, middle + reach]
        return found + [level.at for level in self.levels if level.axis == "xy"[axis]]


class _Scale:
    """Maps values to positions along an axis, which ends at ticks, or at the values (`tight`).

    whole  ticks are integers
    """

    def __init__(
        self,
        values: Sequence[float],
        start: float,
        end: float,
        *,
        logarithmic: bool = False,
        shares: bool = False,
        tight: bool = False,
        whole: bool = False,
    ) -> None:
        self._log = logarithmic
        if shares:
            values = [min(1.0, max(0.0, value)) for value in values]
        low, high = min(values), max(values)
        if logarithmic:
            low, high = math.floor(math.log10(low)), math.ceil(math.log10(high * 1.0001))
            self.ticks = [10.0**power for power in range(int(low), int(high) + 1)]
        else:
            span = 0.0 if high > low else abs(high) or 1.0
            locator = MaxNLocator(_TICKS, integer=whole)
            ticks = locator.tick_values(low - span / 2, high + span / 2)
            # Rounded, as a tick of 1 may be slightly above it.
            self.ticks = [float(t) for t in ticks if not shares or 0 <= round(t, 9) <= 1]
            if tight and high > low:
                self.ticks = [tick for tick in self.ticks if low <= tick <= high]
            else:
                low, high = self.ticks[0], self.ticks[-1]
        self._low, self._span = low, high - low
        self._start, self._length = start, end - start

    def __call__(self, value: float) -> float:
        place = math.log10(value) if self._log else value
        share = min(1.0, max(0.0, (place - self._low) / self._span))
        return round(self._start + self._length * share, 2)


def draw(chart: Chart) -> Markup:
    """The chart as an SVG element; empty without lines and points."""
    if not chart.lines and not chart.points:
        return Markup()
    svg = ET.Element("svg", viewBox=f"0 0 {chart.width:g} {chart.height:g}", role="img")
    svg.set("class", "chart")
    svg.set("aria-label", _description(chart))
    drawn = ET.SubElement(svg, "g", {"aria-hidden": "true"})  # else each mark is read aloud
    right, bottom = chart.width - _RIGHT, chart.height - _BOTTOM
    x = _Scale(
        chart.values(0),
        _LEFT,
        right,
        logarithmic=chart.logarithmic,
        tight=not chart.points,
        whole=chart.x_format.endswith(".0f"),
    )
    y = _Scale(chart.values(1), bottom, _TOP, shares=chart.shares)
    _text(drawn, chart.title, _LEFT, 16, "title")
    for tick, written in zip(y.ticks, _written(y.ticks, chart.y_format), strict=True):
        _line(drawn, (_LEFT, y(tick)), (right, y(tick)), "grid")
        _text(drawn, written, _LEFT - 6, y(tick) + 4, "tick end")
    for tick, written in zip(x.ticks, _written(x.ticks, chart.x_format), strict=True):
        _line(drawn, (x(tick), bottom), (x(tick), bottom + 4), "grid")
        _text(drawn, written, x(tick), bottom + 17, "tick middle")
    _text(drawn, chart.x_label, (_LEFT + right) / 2, chart.height - 8, "tick middle")
    up = _text(drawn, chart.y_label, 0, 0, "tick middle")
    up.set("transform", f"translate(13 {(_TOP + bottom) / 2:g}) rotate(-90)")
    taken = _levels(drawn, chart, x, y)
    for line in chart.lines:
        _draw_line(drawn, line, x, y)
    for point in chart.points:
        _draw_point(drawn, point, x, y)
    _labels(drawn, chart, x, y, taken)
    return Markup(ET.tostring(svg, encoding="unicode"))


def _written(ticks: Sequence[float], form: str) -> list[str]:
    """Ticks as text; percentages get as many decimals as they need."""
    texts = [format(tick, form) for tick in ticks]
    for places in range(1, 5) if form.endswith("%") else ():
        labelled = (float(text.rstrip("%")) / 100 for text in texts)
        if all(abs(value - tick) < 1e-9 for value, tick in zip(labelled, ticks, strict=True)):
            break
        texts = [f"{tick:.{places}%}" for tick in ticks]
    return texts


def _description(chart: Chart) -> str:
    """The chart in words, with the first and last value of each line."""
    parts = [f"{chart.title}: {chart.y_label} by {chart.x_label}"]
    for line in chart.lines:
        first, last = (format(line.points[at][1], chart.y_format) for at in (0, -1))
        parts.append(f"{line.label} from {first} to {last}")
    parts += [
        f"{p.label} {format(p.y, chart.y_format)}" for p in chart.points if p.label and p.named
    ]
    return "; ".join(parts)


def _levels(svg: ET.Element, chart: Chart, x: _Scale, y: _Scale) -> list[_Box]:
    """Draw the levels; returns the boxes of their labels."""
    right, bottom = chart.width - _RIGHT, chart.height - _BOTTOM
    taken = []
    for number, level in enumerate(chart.levels):
        kind, width = "tick", _LETTER * len(level.label)
        if level.axis == "y":
            _line(svg, (_LEFT, y(level.at)), (right, y(level.at)), "level")
            left, base = _LEFT + 4, y(level.at) - 4
        else:
            _line(svg, (x(level.at), _TOP), (x(level.at), bottom), "level")
            # Alternate the height of labels, as neighbours may be close.
            left, base = x(level.at) + 3, _TOP + 9 + _ROW * (number % 2)
            if left + width > right:
                kind, left = "tick end", x(level.at) - 3 - width
        _text(svg, level.label, left + width if kind == "tick end" else left, base, kind)
        taken.append(_box(level.label, left, base))
    return taken


def _draw_line(svg: ET.Element, line: Line, x: _Scale, y: _Scale) -> None:
    kind = f"series-{line.series % COLOURS + 1}"
    dashed = " dashed" if line.dashed else ""
    for part in line.parts():
        points, band = line.points[part], line.band[part]
        if band:
            low = [(x(px), y(pair[0])) for (px, _), pair in zip(points, band, strict=True)]
            high = [(x(px), y(pair[1])) for (px, _), pair in zip(points, band, strict=True)]
            _add(svg, "polygon", f"band {kind}", points=_places([*low, *high[::-1]]))
        places = [(x(px), y(py)) for px, py in points]
        _add(svg, "polyline", f"line {kind}{dashed}", line.label, points=_places(places))
        if len(places) == 1:
            _dot(svg, places[0], kind, line.label)


def _draw_point(svg: ET.Element, point: Point, x: _Scale, y: _Scale) -> None:
    kind = f"series-{point.series % COLOURS + 1}"
    for across, up in ((point.x_spread, 0.0), (0.0, point.y_spread)):
        if across or up:
            ends = [(x(point.x + s * across), y(point.y + s * up)) for s in (-1, 1)]
            _line(svg, ends[0], ends[1], f"whisker {kind}")
    _dot(svg, (x(point.x), y(point.y)), kind, point.label)


def _labels(svg: ET.Element, chart: Chart, x: _Scale, y: _Scale, taken: Sequence[_Box]) -> None:
    """Label lines at their ends and points next to them, where there is free space.

    A point without free space is labelled only by its tooltip.
    """
    boxes = list(taken)
    dots = np.array([(x(point.x), y(point.y)) for point in chart.points]).reshape(-1, 2)
    lines = [
        _along([(x(px), y(py)) for px, py in line.points[part]])
        for line in chart.lines
        for part in line.parts()
    ]
    for text, places, kind, of_line in _wanted(chart, x, y):
        inside = [found for found in places if _fits(_box(text, *found), chart)]
        free = [f for f in inside if not any(_overlap(_box(text, *f), other) for other in boxes)]
        drawn = np.concatenate([dots, *lines]) if of_line else dots
        clear = [f for f in free if not _covers(_box(text, *f), drawn)]
        if not clear and not of_line:
            continue
        left, base = (clear or free or inside or places)[0]
        boxes.append(_box(text, left, base))
        _text(svg, text, left, base, f"label {kind}")


def _before(text: str, end: tuple[float, float], side: int) -> Iterator[tuple[float, float]]:
    """Candidate positions of a line's label: left of its end, first on `side` (-1 is above)."""
    left = end[0] - _LETTER * len(text) - 6
    for direction in (side, -side):
        for row in range(8):
            yield left, end[1] - 6 + direction * _ROW * row


def _beside(text: str, place: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """Candidate positions of a point's label, nearest first."""
    width = _LETTER * len(text)
    for row in range(4):  # farther away, the label's point would be unclear
        for up in (-_ROW * row, _ROW * row):
            yield place[0] + 8, place[1] + 4 + up
            yield place[0] - width - 8, place[1] + 4 + up


def _box(text: str, left: float, base: float) -> _Box:
    """Bounding box of a text: left, top, right, bottom."""
    return left, base - 9, left + _LETTER * len(text), base + 2


def _along(places: Sequence[tuple[float, float]]) -> Array:
    """Points on a line, so dense that no label fits between two; shape (n, 2)."""
    ends = np.asarray(places)
    along = np.hypot(*np.diff(ends, axis=0).T).cumsum() if len(ends) > 1 else np.zeros(0)
    length = np.concatenate([[0.0], along])
    at = np.union1d(length, np.arange(0.0, length[-1], _ROW / 2))
    return np.stack([np.interp(at, length, ends[:, axis]) for axis in (0, 1)], axis=1)


def _covers(box: _Box, places: Array) -> bool:
    """Whether any of the places, shape (n, 2), is in or at the edge of the box."""
    left, top, right, bottom = box
    across, down = places.T
    inside = (across > left - _DOT) & (across < right + _DOT)
    return bool((inside & (down > top - _DOT) & (down < bottom + _DOT)).any())


def _fits(box: _Box, chart: Chart) -> bool:
    """Whether a label is within the axes; on the right it may reach the edge of the chart."""
    inside = box[0] >= _LEFT and box[2] <= chart.width
    return inside and box[1] >= _TOP - _ROW and box[3] <= chart.height - _BOTTOM + 6


def _wanted(
    chart: Chart, x: _Scale, y: _Scale
) -> Iterator[tuple[str, list[tuple[float, float]], str, bool]]:
    """Text, candidate positions and colour of each label, and whether it belongs to a line.

    Lines of one colour may end close together: a label therefore begins with the style of its line,
    and is placed on the side away from the other ends.
    """
    ends = [(x(px), y(py)) for px, py in (line.points[-1] for line in chart.lines)]
    for line, (right, height) in zip(chart.lines, ends, strict=True):
        if line.label:
            text = f"{'- -' if line.dashed else '—'} {line.label}"
            above = height <= float(np.median([end[1] for end in ends]))
            places = _before(text, (min(right, chart.width - _RIGHT), height), -1 if above else 1)
            yield text, list(places), f"series-{line.series % COLOURS + 1}", True
    for point in chart.points:
        if point.label and point.named:
            places = _beside(point.label, (x(point.x), y(point.y)))
            yield point.label, list(places), f"series-{point.series % COLOURS + 1}", False


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _places(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{px:g},{py:g}" for px, py in np.asarray(places).round(1))


def _line(svg: ET.Element, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
    names = zip(("x1", "y1", "x2", "y2"), (*start, *end), strict=True)
    _add(svg, "line", kind, **{name: f"{value:g}" for name, value in names})


def _dot(svg: ET.Element, place: tuple[float, float], kind: str, title: str) -> None:
    _add(svg, "circle", kind, title, cx=f"{place[0]:g}", cy=f"{place[1]:g}", r=f"{_DOT}")


def _text(svg: ET.Element, text: str, x: float, y: float, kind: str) -> ET.Element:
    made = _add(svg, "text", kind, x=f"{x:g}", y=f"{y:g}")
    made.text = text
    return made


def _add(svg: ET.Element, tag: str, kind: str, title: str = "", **attributes: str) -> ET.Element:
    """Add an element; `kind` is its class in the style sheet, `title` its tooltip."""
    made = ET.SubElement(svg, tag, attributes | {"class": kind})
    if title:
        ET.SubElement(made, "title").text = title
    return made
