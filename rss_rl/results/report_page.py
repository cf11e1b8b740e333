"""The report of runs: a self-contained, printable HTML file that loads and sends nothing.

Runs that differ only in the seed form a group. The page has a part for each data that runs were
trained on: scores and curves of all groups on these data, with bands over several seeds; texts and
words are those of its first run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from rss_rl.components import NOTHING, Trust
from rss_rl.data.manifest import Manifest, SplitInfo
from rss_rl.data.store import open_prepared
from rss_rl.durable import disk_errors, replace_file
from rss_rl.errors import StorageError
from rss_rl.metrics.measures import (
    all_measures,
    find_measure,
    format_measure,
    leading_measures,
    score_sentences,
    task_measures,
)
from rss_rl.pages.assets import filled
from rss_rl.results.charts import (
    COLOURS,
    calibration_chart,
    coverage_chart,
    curve_charts,
    rows_chart,
)
from rss_rl.results.frame import grouped, runs_frame, score_names, with_groups
from rss_rl.results.scores import (
    Reading,
    ReadText,
    calibration,
    calibration_error,
    class_scores,
    coverage,
    read_split,
)
from rss_rl.results.sentences import (
    interval_sentence,
    rows_sentence,
    run_warnings,
    still_training,
    trojan_sentences,
)
from rss_rl.results.tables import (
    differing_settings,
    mode_name,
    modes_note,
    score_cell,
    setting_texts,
    shown_scores,
    word_cells,
)
from rss_rl.results.trojan import Trojan, find_trojan
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.version import VERSION

_READS = {
    "thresholded": "the words it keeps",
    "weights": "as many that a linear classifier weighs most",
    "random": "as many random words",
    "all": "all words, trained on them",
    "linear": "all words, a linear classifier",
}
_WORDS = 20
_CLASS_WORDS = 8
_MOST_CLASSES = 20
"""Classes that a confusion matrix can show."""
_FREQUENT = 5
"""Fewest occurrences of a word in the list of those kept least."""
_LONGEST = 600
"""Words of a text that are shown."""


@dataclass(frozen=True)
class Part:
    """What is known of runs on the same data.

    frame      see `runs_frame` and `with_groups`
    split      whose scores and texts are shown: dev if no run is finished
    reading    of the first run
    trojan     of the first run, see `find_trojan`
    """

    frame: pd.DataFrame
    split: str
    reading: Reading
    manifest: Manifest
    trojan: Trojan | None


def gather_parts(
    runs: Sequence[Path],
    split: str = "test",
    *,
    trust: Trust = NOTHING,
    progress: Callable[[str], None] = lambda doing: None,
) -> list[Part]:
    """Read the logs and scores of runs, and their selections on a split.

    Args:
        trust: see `rss_rl.reading.trained_runs.open_models`.
        progress: called with the current step.

    Raises:
        RssError: any expected failure.
    """
    frame = runs_frame(runs, trust).sort_values("finished", ascending=False, kind="stable")
    parts = []
    for _, of_data in with_groups(frame).groupby("data_sha256", sort=False):
        first = of_data.iloc[0]
        read = split if first["finished"] else "dev"  # test is read at the end
        progress(f"reading {read} with {first['run']}")
        reading = read_split(Path(first["run"]), read, trust=trust)
        prepared = open_prepared(str(first["data"]))
        trojan = find_trojan(Path(first["run"]), prepared, read, reading)
        parts.append(Part(of_data, read, reading, prepared.manifest, trojan))
    return parts


def write_report_page(
    runs: Sequence[Path],
    out: Path,
    split: str = "test",
    *,
    trust: Trust = NOTHING,
    progress: Callable[[str], None] = lambda doing: None,
) -> Path:
    """Gather what is known of runs and write their page; arguments as `gather_parts`.

    Raises:
        StorageError: `out` cannot be written. RssError: see `gather_parts`.
    """
    text = report_page(gather_parts(runs, split, trust=trust, progress=progress))
    with disk_errors(out, "cannot be written", "Give another file", StorageError):
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, text)
    return out


def report_page(parts: Sequence[Part]) -> str:
    """The page as HTML."""
    runs = [Path(run).resolve().name for part in parts for run in part.frame["run"].unique()]
    return filled(
        "report.html",
        title=runs[0] if len(runs) == 1 else f"{runs[0]} and {len(runs) - 1} more",
        version=VERSION,
        written=f"{datetime.now():%d %B %Y, %H:%M}",
        parts=[_shown(part) for part in parts],
        drawn=COLOURS,
        marked_text=marked_text,
    )


def _shown(part: Part) -> dict[str, Any]:
    """What the template shows of a part."""
    split = part.split
    frame, means = part.frame, grouped(part.frame)
    first, metric = frame.iloc[0], _measure(part.frame, split)
    names, reading = shown_scores(means), part.reading
    return {
        "name": part.manifest.name,
        "split": split,
        "groups": [
            (group, [Path(run).name for run in of_group["run"].unique()])
            for group, of_group in frame.groupby("group")
        ],
        "several": means["runs"].max() > 1,
        "warnings": list(_warnings(part)),
        "summary": _summary(means, metric, split, part.manifest.splits[split]),
        "asked": list(_asked(frame, part.manifest)),
        "metric": None if metric is None else find_measure(metric).label,
        "bars": [] if metric is None else list(_bars(means, metric, split)),
        "measures": [find_measure(name) for name in names],
        "scores": [
            (group, [_score_line(line, names) for line in of_group.to_dict("records")])
            for group, of_group in means.groupby("group")
        ],
        "modes": modes_note(means["mode"]),
        "roles": "heads_kept" in names,
        "curves": curve_charts(frame, metric),
        "phases": first.filter(regex=r"^phases\.\d+\.name$").dropna().tolist(),
        "rows": _of_rows(Path(first["run"]), metric, split) if first["finished"] else None,
        "reading": reading,
        "selects": "thresholded" in {*frame["mode"]},
        "decide": trojan_sentences(part.trojan, split),
        "dependent": None if part.trojan is None else word_cells(part.trojan["words"]),
        "texts": [
            ("Right, with the highest confidence", reading.right),
            ("Wrong, with the highest confidence", reading.wrong),
        ],
        "classes": _classes(part),
        "words": [table for table in _words(reading) if table[2]],
        "settings": setting_texts(frame),
        "differing": differing_settings(frame),
    }


def _of_rows(run: Path, metric: str | None, split: str) -> tuple[Markup, str] | None:
    """Scores by the number of rows as a chart and a sentence, of a run that measured them."""
    curve = RunDirectory.open(run).read_report().get("learning_curve")
    if curve is None or metric is None or split != "test":
        return None
    return rows_chart(curve, metric), rows_sentence(curve, metric)


def _measure(frame: pd.DataFrame, split: str) -> str | None:
    """The measure that all runs are judged by, one of the task if possible; None without any."""
    lines = frame[(frame["split"] == split) & frame["mode"].isin(["thresholded", "all"])]
    judged = lines.sort_values("mode", ascending=False).drop_duplicates("run")
    measured = [name for name in score_names(frame) if judged[name].notna().all()]
    best = frame["evaluation.best_metric"].iloc[0]
    tasks = [best] if best in task_measures() else []
    wanted = (*tasks, *leading_measures(), best, *all_measures())
    return next((name for name in wanted if len(judged) and name in measured), None)


def _warnings(part: Part) -> Iterator[str]:
    yield from (f"{line}." for line in still_training(part.frame))
    runs = part.frame[part.frame["finished"]].drop_duplicates("run")
    for run, target_share in runs[["run", "reward.target_share"]].to_numpy():
        report, of = RunDirectory.open(Path(run)).read_report(), f"{run}: "
        if run == runs["run"].iloc[0]:
            report["trojan"] = {part.split: part.trojan}
        for warning in run_warnings(report, target_share):
            yield f"{of if len(runs) > 1 else ''}{warning}."


def _summary(means: pd.DataFrame, metric: str | None, split: str, info: SplitInfo) -> list[str]:
    """Sentences on the scores of the first group; with several seeds, on the means.

    Args:
        info: of the split.
    """
    if metric is None:
        return []
    lines_of_split = means[(means["group"] == means["group"].iloc[0]) & (means["split"] == split)]
    by_mode = {
        line["mode"]: line for line in lines_of_split.to_dict("records") if pd.notna(line[metric])
    }
    lines = score_sentences(by_mode, metric, split)
    lines.extend(filter(None, [interval_sentence(by_mode, info, split)]))
    count = lines_of_split["runs"].max()
    return [f"Means over {count} runs.", *lines] if count > 1 else lines


def _asked(frame: pd.DataFrame, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The task and settings of the first group, in a few lines."""
    group = frame[frame["group"] == frame["group"].iloc[0]].drop_duplicates("run")
    first = group.iloc[0]
    yield "To predict", manifest.labels.described
    rows = ", ".join(f"{info.rows:,} {name}" for name, info in manifest.splits.items())
    yield "From", f"{manifest.name}: {rows}"
    if "thresholded" in {*frame["mode"]}:
        share, cost = first["reward.target_share"], first["reward.sparsity_cost"]
        price = f"no share asked for; a reward lower by {cost:g} if all are kept"
        yield "Words to keep", price if share is None else f"{100 * share:.3g}% (asked for)"
        yield "Policy", first["policy.name"]
    yield "Encoder", f"{first['model.encoder.name']}, {first['model.hidden']} features"
    vectors = manifest.vectors
    files = ", ".join(file.name for file in vectors.files) or "learnt from these texts"
    weights = ", with label weights" if vectors.label_weights else ""
    yield "Word vectors", f"{files}{weights}; {vectors.dim} numbers per word"
    yield "Seeds", ", ".join(str(seed) for seed in group["seed"])
    if first["finished"]:
        seconds, updates = group["wall_seconds"].mean(), first["steps"]
        yield "Training", f"{updates:,.0f} updates, {seconds:,.0f} seconds per run"
        yield "Size", f"{first['parameters']:,.0f} parameters without embeddings"


def _classes(part: Part) -> dict[str, Any] | None:
    """What the template shows of single classes; None where there are none, or too many."""
    names, reading = part.manifest.labels.names, part.reading
    if not 0 < len(names) <= _MOST_CLASSES or "confidence" not in reading.predictions:
        return None
    bins = calibration(reading.predictions)
    return {
        "names": names,
        "scores": class_scores(reading.predictions, names),
        "chart": calibration_chart(bins),
        "abstaining": coverage_chart(coverage(reading.predictions)),
        "error": calibration_error(bins),
        "before": calibration_error(calibration(reading.predictions, "uncalibrated")),
    }


def _words(
    reading: Reading,
) -> Iterator[tuple[str, tuple[str, str], list[tuple[str, int, int]]]]:
    """Lists of words with two counts, and what these are: overall, then by predicted class.

    Of a class those that its texts keep more often than if classes were alike.
    """
    words, by_class = reading.words[["kept", "count"]], reading.class_words
    rare = words["count"] < _FREQUENT
    if not 0 < words["kept"].sum() < words["count"].sum():
        return
    most = words[words["kept"] > 0][:_WORDS]
    counts = "kept", "occurs"
    yield "Kept most often, for how often they occur", counts, list(most.itertuples())
    yield "Kept least often", counts, list(words[~rare][::-1][:_WORDS].itertuples())
    if not 0 < by_class.shape[1] <= _MOST_CLASSES:
        return
    everywhere = by_class.sum(axis=1)
    expected = np.outer(everywhere, by_class.sum() / by_class.to_numpy().sum())
    for name, more in (by_class - expected).items():
        leading = more[more > 0].sort_values(ascending=False, kind="stable").index[:_CLASS_WORDS]
        yield (
            f"Kept for {name}, more often than for others",
            ("kept for it", "kept in all"),
            [(word, by_class.at[word, name], everywhere[word]) for word in leading],
        )


def _bars(
    means: pd.DataFrame, metric: str, split: str
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Scores of each group as bars; a measure not within [0, 1] is scaled by its largest value."""
    shown = means[(means["split"] == split) & means["mode"].isin(_READS) & means[metric].notna()]
    largest = 1.0 if shown[metric].between(0, 1).all() else shown[metric].abs().max()
    for group, of_group in shown.groupby("group"):
        lines = {line["mode"]: line for line in of_group.to_dict("records")}
        rows = []
        for mode in (mode for mode in _READS if mode in lines):
            mean, deviation = lines[mode][metric], lines[mode][f"{metric}_sd"]
            off = 0.0 if pd.isna(deviation) else deviation
            value = format_measure(metric, mean)
            value += "" if pd.isna(deviation) else f" ± {format_measure(metric, deviation)}"
            ends = {"width": mean, "low": mean - off, "high": mean + off}
            places = {k: f"{100 * min(1.0, max(0.0, v / largest)):.2f}" for k, v in ends.items()}
            rows.append({"mode": mode, "name": _READS[mode], "value": value, **places})
        yield group, rows


def _score_line(line: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [line["split"], mode_name(line["mode"]), *(score_cell(line, name) for name in names)]


def marked_text(text: ReadText, slot: int) -> tuple[list[tuple[str, bool, bool]], int]:
    """Stretches of a sentence's words, whether each is kept and marked; how many words are left."""
    words, kept = text.words[slot][:_LONGEST], text.kept[slot]
    marked = np.zeros_like(kept) if text.marked is None else text.marked[slot]
    alike = itertools.groupby(zip(words, kept, marked, strict=False), lambda word: word[1:])
    pieces = [(" ".join(word for word, *_ in run), *kind) for kind, run in alike]
    return pieces, len(text.words[slot]) - len(words)
