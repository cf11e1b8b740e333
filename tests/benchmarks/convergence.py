"""Accuracy against training time, of finished runs (Bi-BloSAN paper, figure 5).

    rss-rl train CONFIG data=prepared/cr model.encoder=disan --run-dir runs/cr-disan
    python tests/benchmarks/convergence.py runs/cr-disan=DiSAN runs/cr-bilstm=Bi-LSTM --out cr

Each RUN=label is a run directory of `rss-rl train`; several of one label are seeds, a mean (and
standard deviation) in the table. The curve is that of dev, as the run's metrics have it: with every
token in phases that train so, with the thresholded selection in others. Time is the sum of the
updates (time/update_s): sampling, learning and publishing, and neither evaluations nor checkpoints
nor start. It is wall time, so compare runs that were trained one after another on a quiet machine.
A star is the test accuracy of the best checkpoint, at the time of that checkpoint.

Writes OUT.csv (every point), OUT.md and OUT.png.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from plotting import COLOURS, figure_of

from rss_rl.errors import CheckpointError, RssError
from rss_rl.logs.metrics import read_metrics
from rss_rl.runs.run_directory import RunDirectory

REACHED = 0.95
_MODES = ("all", "thresholded")
_COLUMNS = (
    "encoder",
    "seeds",
    "ms an update",
    "training s",
    "best dev accuracy",
    f"s to {REACHED:.0%} of its best",
    f"s to {REACHED:.0%} of the best of all",
    "test accuracy",
)


@dataclass(frozen=True)
class Curve:
    """Of one run.

    update_s   seconds of each update
    points     (update, training seconds so far, dev accuracy), by update
    tested     (training seconds at the best checkpoint, test accuracy); None: no report yet
    """

    label: str
    run: str
    update_s: tuple[float, ...]
    points: tuple[tuple[int, float, float], ...]
    tested: tuple[float, float] | None

    @property
    def best(self) -> float:
        """The highest dev accuracy."""
        return max(accuracy for _, _, accuracy in self.points)

    def seconds_to(self, accuracy: float) -> float | None:
        """Training time of the first evaluation with at least this accuracy."""
        return next((seconds for _, seconds, seen in self.points if seen >= accuracy), None)


def read_curve(path: Path, label: str) -> Curve:
    """The curve of a run.

    Raises:
        CheckpointError: no run is there, or its metrics do not tell its whole time and accuracy.
    """
    run = RunDirectory.open(path)
    rows = read_metrics(path).select(["step", "tag", "value"]).to_pylist()
    tags = [f"dev/{mode}/accuracy" for mode in _MODES]
    # Two phases meet in one update; the one that begins is evaluated after the one that ends.
    accuracies = {row["step"]: row["value"] for row in rows if row["tag"] in tags}
    last = max(accuracies, default=0)
    updates = [row for row in rows if row["tag"] == "time/update_s" and row["step"] <= last]
    seconds = {row["step"]: row["value"] for row in updates}
    if last == 0 or sorted(seconds) != list(range(1, last + 1)):
        raise CheckpointError(
            "the metrics lack the accuracy on dev, or the time of some updates",
            where=str(path),
            remedy="Name a run on classes that was trained from its beginning by this version",
        )
    spent = [0.0, *np.cumsum([seconds[step] for step in sorted(seconds)]).tolist()]
    points = tuple((step, spent[step], accuracies[step]) for step in sorted(accuracies))
    times = tuple(seconds[step] for step in sorted(seconds))
    return Curve(label, str(path), times, points, _tested(run, spent))


def _tested(run: RunDirectory, spent: Sequence[float]) -> tuple[float, float] | None:
    try:
        report = run.read_report()
    except CheckpointError:  # the run is not over
        return None
    scores = report["splits"].get("test", {})
    own = "thresholded" if "thresholded" in scores else "all"
    return (spent[report["best_step"]], scores[own]["accuracy"]) if own in scores else None


def table(curves: Sequence[Curve]) -> str:
    """Markdown, a row for each label."""
    best = max(curve.best for curve in curves)
    rows = [f"| {' | '.join(_COLUMNS)} |", "|---|" + "---:|" * (len(_COLUMNS) - 1)]
    for label in dict.fromkeys(curve.label for curve in curves):
        own = [curve for curve in curves if curve.label == label]
        cells = [
            label,
            str(len(own)),
            _spread([1000 * statistics.median(curve.update_s) for curve in own], 1),
            _spread([sum(curve.update_s) for curve in own], 1),
            _spread([100 * curve.best for curve in own], 1),
            _spread([curve.seconds_to(REACHED * curve.best) for curve in own], 2),
            _spread([curve.seconds_to(REACHED * best) for curve in own], 2),
            _spread([100 * curve.tested[1] if curve.tested else None for curve in own], 1),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _spread(values: Sequence[float | None], digits: int) -> str:
    """`mean (standard deviation)` of those there are; how many there are, where some lack."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    text = f"{statistics.mean(known):.{digits}f}"
    if len(known) > 1:
        text += f" ({statistics.stdev(known):.{digits}f})"
    return text if len(known) == len(values) else f"{text}, {len(known)} of {len(values)} seeds"


def write_csv(path: Path, curves: Sequence[Curve]) -> None:
    """A row for each evaluation of each run."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "run", "update", "training_s", "dev_accuracy"])
        for curve in curves:
            writer.writerows((curve.label, curve.run, *point) for point in curve.points)


def draw(path: Path, curves: Sequence[Curve]) -> None:
    """Dev accuracy over training seconds; one colour for each label."""
    figure, (panel,) = figure_of(1, 1)
    labels = list(dict.fromkeys(curve.label for curve in curves))
    for curve in curves:
        colour, marker = COLOURS[labels.index(curve.label) % len(COLOURS)]
        first = curve is next(other for other in curves if other.label == curve.label)
        _, seconds, accuracies = zip(*curve.points, strict=True)
        shares = [100 * accuracy for accuracy in accuracies]
        name = curve.label if first else None
        panel.plot(seconds, shares, color=colour, marker=marker, ms=3, lw=1.2, label=name)
        if curve.tested is not None:
            at, accuracy = curve.tested
            panel.plot(at, 100 * accuracy, "*", color=colour, ms=12, mec="black", mew=0.5)
    panel.set(xlabel="training time, s (updates alone)", ylabel="accuracy on dev, %")
    panel.set_title("a star: test accuracy of the best checkpoint", fontsize=10)
    panel.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Read, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "runs", nargs="+", metavar="RUN=label", help="label: default the run's name"
    )
    parser.add_argument("--out", type=Path, default=Path("convergence"), help="without an ending")
    given = parser.parse_args()
    named = [run.rpartition("=") if "=" in run else (run, "", Path(run).name) for run in given.runs]
    try:
        curves = [read_curve(Path(path), label) for path, _, label in named]
    except RssError as error:
        parser.exit(1, f"{error}\n")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for ending, write in ((".csv", write_csv), (".png", draw)):
        write(given.out.with_name(given.out.name + ending), curves)
    text = table(curves)
    given.out.with_name(given.out.name + ".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
