"""Tables and figure of lengths.py."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apart import OK
from plotting import COLOURS, figure_of

TITLES = {
    ("training", "seconds"): "Training step (forward and backward), seconds",
    ("inference", "seconds"): "Inference, seconds",
    ("training", "peak_mb"): "Peak memory of a training step, MB",
    ("inference", "peak_mb"): "Peak memory of inference, MB",
}
Cells = Sequence[dict[str, Any]]


def write_report(out: Path, settings: dict[str, Any], cells: Cells) -> None:
    """Write OUT/lengths.md and OUT/lengths.png."""
    (out / "lengths.md").write_text(markdown(settings, cells))
    draw(out / "lengths.png", settings, cells)


def by_place(cells: Cells) -> dict[tuple[str, str], dict[int, list[dict[str, Any]]]]:
    """All records of a line and mode, by length."""
    found: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = defaultdict(dict)
    for cell in cells:
        found[cell["line"], cell["mode"]].setdefault(cell["n"], []).append(cell)
    return found


def median_of(records: Cells, key: str) -> float | None:
    """Of the records that have it."""
    values = [record[key] for record in records if record.get(key) is not None]
    return statistics.median(values) if values else None


def markdown(settings: dict[str, Any], cells: Cells) -> str:
    """The four tables: in each cell the median, and its ratio to the base."""
    batches = {cell["n"]: cell["batch"] for cell in cells}
    spreads = sorted(spread for spread in spreads_of(cells))
    parts = [
        f"E = {settings['embedding']}, D = {settings['hidden']}, one thread, CPU seconds, torch"
        f" {settings['torch']}; in brackets the ratio to {settings['base']}, which is all that"
        " should be compared between machines."
    ]
    if spreads:
        parts[0] += (
            f" Slowest over fastest round of a cell: median {statistics.median(spreads):.2f},"
            f" at most {spreads[-1]:.2f}."
        )
    for (mode, key), title in TITLES.items():
        header = "".join(f" n = {n}, B = {batch} |" for n, batch in sorted(batches.items()))
        rows = [f"| {title} |{header}", "|---|" + "---:|" * len(batches)]
        places = by_place(cells)
        base = places[settings["base"], mode]
        for line in dict.fromkeys(cell["line"] for cell in cells):
            texts = [entry(places[line, mode].get(n), base.get(n), key) for n in sorted(batches)]
            rows.append(f"| {line} | " + " | ".join(texts) + " |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def entry(records: Cells | None, base: Cells | None, key: str) -> str:
    """`0.12 (1.3 ×)`, why there is no number, or a dash where nothing was measured."""
    if not records:
        return "–"
    value = median_of(records, key)
    if value is None:
        return f"{records[-1]['status']} ({records[-1]['why']})"
    of_base = median_of(base or (), key)
    ratio = median_of(records, "ratio") if key == "seconds" else of_base and value / of_base
    return f"{value:.3g}" + (f" ({ratio:.2g} ×)" if ratio else "")


def spreads_of(cells: Cells) -> list[float]:
    """Slowest over fastest, of each cell that was measured in several rounds."""
    times: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for cell in cells:
        if cell["status"] == OK:
            times[cell["line"], cell["n"], cell["mode"]].append(cell["seconds"])
    return [max(several) / min(several) for several in times.values() if len(several) > 1]


def draw(path: Path, settings: dict[str, Any], cells: Cells) -> None:
    """Four panels over the length, of the common batch size; a cross: no result, and why not."""
    shown = [cell for cell in cells if cell["batch"] == settings["batch"]]
    places = by_place(shown)
    figure, panels = figure_of(2, 2)
    lengths = sorted({cell["n"] for cell in shown})
    names = list(dict.fromkeys(cell["line"] for cell in shown))
    for panel, ((mode, key), title) in zip(panels, TITLES.items(), strict=True):
        panel.set(title=title, xlabel="tokens n", xscale="log", yscale="log")
        panel.set_xticks(lengths, [str(n) for n in lengths], minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        for name, (colour, marker) in zip(names, COLOURS, strict=False):
            medians = {n: median_of(places[name, mode].get(n, ()), key) for n in lengths}
            known = {n: value for n, value in medians.items() if value is not None}
            style = "--" if name.startswith("resan") else "-"
            panel.plot(
                known.keys(), known.values(), style, color=colour, marker=marker, ms=4, label=name
            )
            missing = [n for n in lengths if n in places[name, mode] and n not in known]
            top = panel.get_xaxis_transform()  # x in tokens, y from 0 at the bottom to 1
            panel.plot(missing, [0.98] * len(missing), "x", color=colour, transform=top)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    figure.suptitle(
        f"B = {settings['batch']}, E = {settings['embedding']}, D = {settings['hidden']},"
        " one thread; a cross at the top: out of memory or time"
    )
    figure.savefig(path, dpi=120)
