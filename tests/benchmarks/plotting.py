"""Figures that are written to files, without a display."""

from __future__ import annotations

from itertools import product
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS: list[tuple[Any, str]] = [
    (colour, marker) for marker, colour in product("osv", matplotlib.color_sequences["tab10"])
]
"""Colours and markers that tell thirty lines apart."""


def figure_of(rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    """An empty figure and its panels, row by row."""
    figure = Figure(figsize=(6.5 * columns, 4.5 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False)
    return figure, list(panels.flat)
