"""`rss-rl evaluate`: scores of checkpoints."""

from __future__ import annotations

__all__ = ["EPILOG", "evaluate"]

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rss_rl.api.terminal import counted, plain_table
from rss_rl.cli import options
from rss_rl.cli.options import checkpoint, console, option, trust
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rss_rl.training.evaluation import Mode

EPILOG = """
Examples:

`rss-rl evaluate runs/demo` scores the test split as the final report does.

`rss-rl evaluate runs/demo --split dev --mode thresholded --which latest --json`

`rss-rl evaluate runs/movies-* --marks` compares the selections with people's.

`rss-rl evaluate runs/movies --scores other.jsonl --share 0.2` adds another method's scores.

With --marks the data must say which words people marked, as eraser-movies and yelp-hat do; `rss-rl
data list` lists more. In a pair, a text without any mark does not count. The run must be of the
faithful form. `top-k`, `random` and scores from files keep the policy's mean share of words, or
that of --share.

A line of a scores file is `{"id": "a review", "scores": [0.1, 0.7, 0.2]}`: the example's id, as
`rss-rl data show` prints it, and a number for each word. For a pair of texts, give two lists.

Comprehensiveness and sufficiency are defined as in ERASER. They use the classifier that reads all
words, and say how much the probability of its class falls without the selected words, and with only
the selected words. Similarity is the area under the ROC curve against single annotators; 0.5 is
chance.

AUPRC and the rows `at budgets` and `at people's count` are defined as in Brinner and Zarriess
(EMNLP 2024). `at budgets` is the mean over the best 5, 10, ..., 95% of a text's words. `at people's
count` takes as many of the best words as people marked. IOU F1 at budgets uses the best overlaps,
without a threshold; compr. and suff. at budgets are for the right class.
"""


class ModeName(StrEnum):
    """Selection modes; a copy of `rss_rl.training.evaluation.MODES`, which would import torch."""

    all = "all"
    thresholded = "thresholded"
    sampled = "sampled"
    random = "random"


Split = Annotated[str, option("--split", "Split to score: dev, test, train.")]


def evaluate(
    runs: options.RunPaths,
    split: Split = "test",
    mode: Annotated[
        list[ModeName] | None,
        option(
            "--mode",
            "How tokens are selected; repeatable. `all` is the comparison trained on "
            "all tokens. Default: all modes of the run.",
        ),
    ] = None,
    marks: Annotated[
        bool, option("--marks", "Compare the selections with the words that people marked.")
    ] = False,
    scores: Annotated[
        list[Path] | None,
        option("--scores FILE", "With marks: another method's scores of the words; repeatable."),
    ] = None,
    share: Annotated[
        float | None,
        option(
            "--share",
            "With marks: share of the words for all selections but the policy's. Default: the "
            "policy's mean share.",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    which: options.Which = "best",
    device: options.Device = None,
    trust_plugins: options.TrustPlugins = False,
    markdown: options.Markdown = False,
    json_: options.Json = False,
) -> None:
    """Score a split with a checkpoint of a run, or of several."""
    if markdown and json_:
        raise ConfigError("several output formats are given", remedy="Give one of them")
    marks = marks or bool(scores)
    if marks and mode:
        raise ConfigError("--mode is not for --marks", remedy="Leave out one of them")
    if share is not None and not marks:
        raise ConfigError("--share is for --marks", remedy="Give --marks, too")
    tree: dict[str, Any] = {"split": split, "which": which}
    found: dict[str, Any] = {}
    if marks:
        from rss_rl.results.agreement import score_run_agreement

        given: dict[str, Any] = {"which": checkpoint(which), "share": share, "device": device}
        given |= {"files": _file_names(scores or []), "trust": trust(trust_plugins)}
        for run in runs:
            with counted(console(stderr=True), f"scoring {run}") as progress:
                found[str(run)] = score_run_agreement(run, split, progress=progress, **given)
    else:
        from rss_rl.api.run import Run

        asked: list[Mode] | None = [item.value for item in mode] if mode else None
        tree["steps"] = {}
        for run in runs:
            opened = Run(run, trust_plugins=trust_plugins)
            scored = opened.scores(split, asked, checkpoint(which), device)
            tree["steps"][str(run)] = {name: step for name, (step, _) in scored.items()}
            found[str(run)] = {name: own for name, (_, own) in scored.items()}
    if json_:
        typer.echo(json.dumps({**tree, "runs": found}, indent=2))
    else:
        _print(found, marks=marks, markdown=markdown)


def _print(
    found: Mapping[str, Mapping[str, Mapping[str, float]]], *, marks: bool, markdown: bool
) -> None:
    """Print a table for each run: a row for each measure, a column for each selection."""
    from rss_rl.results.output import markdown_table
    from rss_rl.results.score_cells import agreement_cells, mode_cells, modes_frame

    for run, own in found.items():
        header, body = agreement_cells(own, run) if marks else mode_cells(modes_frame(own), run)
        if markdown:
            typer.echo(f"{markdown_table(header, body)}\n")
        else:
            console().print(plain_table(header, body, left=1), "")


def _file_names(files: Sequence[Path]) -> dict[str, Path]:
    """Column name of each file: its name, or its path if two files have the same name."""
    names = [file.name for file in files]
    named = {file.name if names.count(file.name) == 1 else str(file): file for file in files}
    if len(named) < len(files):
        raise ConfigError("a file of scores is given twice", where="--scores", remedy="Drop one")
    return named
