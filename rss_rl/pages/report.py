"""The report of runs: a self-contained, printable HTML file that loads and sends nothing.

Runs that differ only in the seed form a group. Scores and curves cover all groups, with bands over
several seeds; texts, words and agreement with people are those of the first group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from rss_rl.components import NOTHING, Trust
from rss_rl.data.catalogue import catalogue
from rss_rl.data.manifest import Manifest
from rss_rl.data.store import open_prepared
from rss_rl.durable import disk_errors, replace_file
from rss_rl.errors import CheckpointError, ConfigError, DataError, StorageError
from rss_rl.metrics.measures import (
    find_measure,
    format_measure,
    leading_measures,
    task_measures,
)
from rss_rl.pages.assets import filled
from rss_rl.pages.charts import COLOURS
from rss_rl.pages.report_charts import curve_charts, frontier_chart, words_chart
from rss_rl.pages.report_texts import marked_text
from rss_rl.results.agreement import score_run_agreement
from rss_rl.results.comparing import Group, Run, group_runs, main_score, read_run, setting_rows
from rss_rl.results.reading import Reading, read_split, words_by_share
from rss_rl.results.score import score_run
from rss_rl.results.score_cells import AGREEMENT_LABELS, format_agreement, summary_cells
from rss_rl.results.sentences import kept_warning, score_sentences
from rss_rl.results.summary import Spread, spread, spread_text, summarise
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.version import VERSION

_MODES = {
    "thresholded": "the words it keeps",
    "random": "as many random words",
    "all": "all words, trained on them",
    "whole": "all words, by the same classifier",
}
_MEASURES = (
    "auprc", "token_precision", "token_recall", "token_f1", "iou_f1",
    "similarity", "people_similarity", "comprehensiveness", "sufficiency",
)  # fmt: skip
_WORDS = 20
_FREQUENT = 5
"""Fewest occurrences of a word in the list of those kept least."""


@dataclass(frozen=True)
class Facts:
    """The contents of a report.

    whole       metrics of the split by run, with the classifier trained on selections reading all
                words; for runs without the all-tokens comparison
    reading     of the first run. agreement: for each run of the first group by selection, or why
                there is none
    """

    groups: tuple[Group, ...]
    split: str
    whole: Mapping[Path, Mapping[str, float]]
    reading: Reading
    agreement: Sequence[Mapping[str, Mapping[str, float]]] | str
    manifest: Manifest

    @property
    def runs(self) -> list[Run]:
        """The runs of all groups."""
        return [run for group in self.groups for run in group.runs]


def gather_facts(
    runs: Sequence[Path],
    split: str = "test",
    *,
    trust: Trust = NOTHING,
    progress: Callable[[str], None] = lambda doing: None,
) -> Facts:
    """Read the logs and scores of runs, and their selections on a split.

    Args:
        trust: see `rss_rl.training.trained_models.open_models`.
        progress: called with the current step.

    Raises:
        CheckpointError: a run is not finished. RssError: any other expected failure.
    """
    read = [read_run(run, trust) for run in runs]
    groups = group_runs(read)
    for run in read:
        if run.report is None:
            RunDirectory.open(run.path).read_report()  # raises
    first = groups[0]
    whole: dict[Path, Mapping[str, float]] = {}
    for run in read:
        if _selects(run.config) and "all" not in (run.report or {})["splits"].get(split, {}):
            progress(f"scoring {run.path} with all words")
            whole[run.path] = score_run(run.path, split, ["all"], trust=trust)[1]["all"]
    progress(f"reading {split} with {first.runs[0].path}")
    reading = read_split(first.runs[0].path, split, trust=trust)
    agreement = _agreement(first, split, trust, progress)
    data = open_prepared(str(first.runs[0].config["data"]))
    return Facts(tuple(groups), split, whole, reading, agreement, data.manifest)


def _selects(config: Mapping[str, Any]) -> bool:
    return bool(config["phases"][-1]["selection"] == "sampled")


def _agreement(
    group: Group, split: str, trust: Trust, progress: Callable[[str], None]
) -> list[dict[str, dict[str, float]]] | str:
    found = []
    for run in group.runs:
        progress(f"comparing {run.path} with the words that people marked")
        try:
            found.append(score_run_agreement(run.path, split, trust=trust))
        except (ConfigError, DataError) as error:
            return error.what
    return found


def write_report_page(
    runs: Sequence[Path],
    out: Path,
    split: str = "test",
    *,
    trust: Trust = NOTHING,
    progress: Callable[[str], None] = lambda doing: None,
) -> Path:
    """Gather the facts of runs and write their page; arguments as `gather_facts`.

    Raises:
        StorageError: `out` cannot be written. RssError: see `gather_facts`.
    """
    text = report_page(gather_facts(runs, split, trust=trust, progress=progress))
    with disk_errors(out, "cannot be written", "Give another file", StorageError):
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, text)
    return out


def report_page(facts: Facts) -> str:
    """The page as HTML."""
    metric = _measure(facts)
    reading, by_share = facts.reading, words_by_share(facts.reading)
    names = [run.path.resolve().name for run in facts.runs]
    return filled(
        "report.html",
        title=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
        version=VERSION,
        written=f"{datetime.now():%d %B %Y, %H:%M}",
        warnings=list(_warnings(facts)),
        summary=_summary(facts, metric),
        asked=list(_asked(facts)),
        bars=[] if metric is None else list(_bars(facts, metric)),
        metric=metric and find_measure(metric).label,
        several=any(len(group.runs) > 1 for group in facts.groups),
        tables=[(group, *_score_table(group)) for group in facts.groups],
        groups=facts.groups,
        curves=curve_charts(facts.groups, metric),
        drawn=COLOURS,
        frontier=frontier_chart(facts.groups, facts.split, metric),
        reading=reading,
        split=facts.split,
        texts=[
            ("Right, with the highest confidence", reading.right),
            ("Wrong, with the highest confidence", reading.wrong),
            ("Lowest confidence", reading.unsure),
        ],
        marked_text=marked_text,
        words_chart=words_chart(reading),
        most=by_share[:_WORDS],
        least=[word for word in by_share[::-1] if word.count >= _FREQUENT][:_WORDS],
        agreement=_agreement_table(facts.agreement),
        settings=setting_rows(facts.groups, str),
        data=list(_data(facts.manifest)),
        files=[*facts.manifest.sources, *facts.manifest.vectors.files],
        made=list(_versions(facts.groups[0].runs[0].path)),
    )


def _measure(facts: Facts) -> str | None:
    """The measure that all runs are judged by, one of the task if possible; None without any."""
    chosen = main_score(facts.groups, facts.split)
    if chosen is None:
        return None
    metric, modes = chosen
    names = (metric, *leading_measures()) if metric in task_measures() else leading_measures()
    scores = [
        (run.report or {})["splits"][facts.split][modes[group.name]]
        for group in facts.groups
        for run in group.runs
    ]
    return next((n for n in names if all(own.get(n) is not None for own in scores)), metric)


def _modes(facts: Facts, group: Group, metric: str) -> Iterator[tuple[str, Spread]]:
    """Each mode of reading the split, with the spread of the metric over the group's runs."""
    for mode in _MODES:
        found = []
        for run in group.runs:
            assert run.report is not None
            scores = run.report["splits"].get(facts.split, {}).get(mode)
            if mode == "whole":
                scores = facts.whole.get(run.path)
            if scores is not None and scores.get(metric) is not None:
                found.append(float(scores[metric]))
        if len(found) == len(group.runs):
            yield mode, spread(found)


def _warnings(facts: Facts) -> Iterator[str]:
    """Warnings about runs that miss their target share or do not select."""
    for run in facts.runs:
        asked = run.config["reward"]["target_share"]
        if _selects(run.config) and (warning := kept_warning(run.report or {}, asked)):
            yield f"{run.path}: {warning}."


def _summary(facts: Facts, metric: str | None) -> list[str]:
    """Sentences on the scores of the first group; with several seeds, on the means."""
    if metric is None:
        return []
    modes: dict[str, dict[str, float]] = {
        mode: {metric: found.mean} for mode, found in _modes(facts, facts.groups[0], metric)
    }
    if "thresholded" in modes:
        kept = dict(_modes(facts, facts.groups[0], "kept"))["thresholded"].mean
        modes["thresholded"]["kept"] = kept
    lines = score_sentences(modes, metric, facts.split)
    if "whole" in modes:
        value = format_measure(metric, modes["whole"][metric])
        lines.append(f"With all words, the same classifier reaches {value}.")
    count = len(facts.groups[0].runs)
    return [f"Means over {count} seeds.", *lines] if count > 1 else lines


def _asked(facts: Facts) -> Iterator[tuple[str, str]]:
    """The task and settings of the first group, in a few lines."""
    manifest, config = facts.manifest, facts.groups[0].runs[0].config
    labels = manifest.labels
    what = {
        "classes": f"One of {len(labels.names)} classes: {', '.join(labels.names[:8])}"
        + (" and more" if len(labels.names) > 8 else ""),
        "score": f"A score from {labels.low:g} to {labels.high:g}",
    }.get(labels.kind, f"A {labels.kind} of the passage")
    yield "To predict", what
    rows = ", ".join(f"{info.rows:,} {name}" for name, info in manifest.splits.items())
    yield "From", f"{manifest.name}: {rows}"
    share, cost = (config["reward"][key] for key in ("target_share", "sparsity_cost"))
    if _selects(config):
        yield (
            "Words to keep",
            f"{share:.0%} (asked for)" if share else f"no share asked for; cost {cost:g}",
        )
        yield "Policy", config["policy"]["name"]
    yield "Encoder", f"{config['model']['encoder']['name']}, {config['model']['hidden']} features"
    vectors = manifest.vectors
    files = ", ".join(file.name for file in vectors.files) or "learnt from these texts"
    yield "Word vectors", f"{files}; {vectors.dim} numbers per word"
    reports = [run.report for run in facts.runs if run.report]
    seeds = ", ".join(str(run.seed) for run in facts.groups[0].runs)
    yield "Seeds", seeds
    seconds = sum(report["wall_seconds"] for report in reports) / len(reports)
    yield "Training", f"{reports[0]['steps']:,} updates, {seconds:,.0f} seconds per run"
    yield "Size", f"{reports[0]['parameters']:,} parameters without embeddings"


def _bars(facts: Facts, metric: str) -> Iterator[tuple[Group, list[dict[str, Any]]]]:
    """Scores of each group as bars; a measure not within [0, 1] is scaled by its largest value."""
    modes = {group.name: list(_modes(facts, group, metric)) for group in facts.groups}
    values = [found.mean for own in modes.values() for _, found in own]
    largest = 1.0 if all(0 <= value <= 1 for value in values) else max(map(abs, values))
    for group in facts.groups:
        rows = []
        for mode, found in modes[group.name]:
            off = found.deviation or 0.0
            value = format_measure(metric, found.mean)
            if found.deviation is not None:
                value += f" ± {format_measure(metric, found.deviation)}"
            ends = (found.mean, found.mean - off, found.mean + off)
            places = [100 * min(1.0, max(0.0, end / largest)) for end in ends]
            row = dict(zip(("width", "low", "high"), (f"{p:.2f}" for p in places), strict=True))
            rows.append(row | {"name": _MODES[mode], "value": value, "own": mode == "thresholded"})
        yield group, rows


def _score_table(group: Group) -> tuple[list[str], list[list[str]]]:
    return summary_cells("split", summarise([run.report for run in group.runs if run.report]))


def _agreement_table(
    found: Sequence[Mapping[str, Mapping[str, float]]] | str,
) -> dict[str, Any] | str:
    if isinstance(found, str):
        return found
    selections = [name for name in found[0] if all(name in own for own in found)]
    names = [name for name in _MEASURES if all(name in own[selections[0]] for own in found)]

    def cell(selection: str, name: str) -> str:
        values = [own[selection][name] for own in found]
        return spread_text(spread(values), partial(format_agreement, name))

    body = [[selection, *(cell(selection, name) for name in names)] for selection in selections]
    return {"header": ["selection", *(AGREEMENT_LABELS[name] for name in names)], "body": body}


def _data(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Facts about the data, from the manifest and the catalogue."""
    yield "Name", manifest.name
    if (known := catalogue().get(manifest.name)) is not None:
        yield "Licence, as its authors state it", known.licence
        yield "Described at", known.home
    for name, info in manifest.splits.items():
        words = sum(info.tokens)
        text = f"{info.rows:,} rows, {words:,} words, the longest text {max(info.longest):,}"
        left_out = info.bad_rows + info.dropped_rows + info.long_rows
        text += f"; {left_out:,} rows left out" if left_out else ""
        yield f"Split {name}", text + (f"; {info.cut_rows:,} cut" if info.cut_rows else "")
    tokenizer = manifest.tokenizer
    yield "Words", f"split by {tokenizer.name}" + (", in lower case" if tokenizer.lower else "")
    size, trainable = manifest.vocabulary.size, manifest.vocabulary.trainable
    yield "Vocabulary", f"{size:,} words, {trainable:,} of them in the training texts"
    if manifest.vectors.files:
        covered = manifest.vectors.any
        yield "Words with a vector", f"{covered.words:.1%}; of all tokens {covered.tokens:.1%}"
    yield "Seed of the data", str(manifest.seed)


def _versions(run: Path) -> Iterator[tuple[str, str]]:
    """Versions that made the first run; empty for runs of earlier versions."""
    try:
        record = RunDirectory.open(run).read_provenance()
    except CheckpointError:
        return
    yield "rss-rl", f"{record.get('rss_rl')}, commit {record.get('commit') or 'unknown'}"
    yield "Python", f"{record.get('python')} on {record.get('machine')}"
    for name, number in record.get("libraries", {}).items():
        yield name, str(number)
    for key in ("learner.precision", "sampler.precision"):
        if key in record:  # of those that were other processes it is unknown
            yield f"Matrix products of the {key.partition('.')[0]}", str(record[key])
