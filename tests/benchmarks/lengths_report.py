"""Table and figure of lengths.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from plotting import COLOURS, figure_of

TITLES = {
    ("training", "seconds"): "Training step (forward and backward), seconds",
    ("inference", "seconds"): "Inference, seconds",
    ("training", "peak_mb"): "Peak memory of a training step, MB",
    ("inference", "peak_mb"): "Peak memory of inference, MB",
}
_VALUES = ["seconds", "ratio", "peak_mb"]


def write_report(out: Path, settings: dict[str, Any], cells: Sequence[dict[str, Any]]) -> str:
    """Write OUT/lengths.csv and OUT/lengths.png; returns the table as text."""
    frame = pd.DataFrame(cells).reindex(
        columns=["mode", "n", "batch", "line", "status", "why", *_VALUES]
    )
    keys = ["mode", "n", "batch", "line"]
    medians = frame.groupby(keys, sort=False).agg(
        {"status": "last", "why": "last"} | dict.fromkeys(_VALUES, "median")
    )
    medians.to_csv(out / "lengths.csv")
    draw(out / "lengths.png", settings, medians.reset_index())
    return medians.to_string(float_format="{:.3g}".format)


def draw(path: Path, settings: dict[str, Any], medians: pd.DataFrame) -> None:
    """Four panels over the length, of the common batch size; a cross: no result."""
    shown = medians[medians["batch"] == settings["batch"]]
    figure, panels = figure_of(2, 2)
    lengths = sorted(set(shown["n"]))
    for panel, ((mode, key), title) in zip(panels, TITLES.items(), strict=True):
        panel.set(title=title, xlabel="tokens n", xscale="log", yscale="log")
        panel.set_xticks(lengths, [str(n) for n in lengths], minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        for name, (colour, marker) in zip(shown["line"].unique(), COLOURS, strict=False):
            line = shown[(shown["line"] == name) & (shown["mode"] == mode)].sort_values("n")
            known, missing = line[line[key].notna()], line[line[key].isna()]["n"]
            style = "--" if name.startswith("resan") else "-"
            panel.plot(known["n"], known[key], style, color=colour, marker=marker, ms=4, label=name)
            top = panel.get_xaxis_transform()  # x in tokens, y from 0 at the bottom to 1
            panel.plot(missing, [0.98] * len(missing), "x", color=colour, transform=top)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    figure.suptitle(
        f"B = {settings['batch']}, E = {settings['embedding']}, D = {settings['hidden']},"
        " one thread; a cross at the top: out of memory or time"
    )
    figure.savefig(path, dpi=120)
