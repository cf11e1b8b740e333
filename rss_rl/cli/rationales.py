"""`rss-rl rationales`: agreement of selections with the words that people marked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rss_rl.api.terminal import counted, plain_table
from rss_rl.cli import options
from rss_rl.cli.evaluate import Split
from rss_rl.cli.options import checkpoint, console, option, split_list, trust
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rss_rl.components import Trust

EPILOG = """
Examples:

`rss-rl rationales runs/movies` scores the selections of the test split.

`rss-rl rationales runs/rss runs/hardkuma --share 0.2 --markdown`

`rss-rl rationales runs/movies --posthoc occlusion,lime --scores other.jsonl` adds columns for
explanations of the trained classifier, and for another method's scores of the words.

`rss-rl rationales runs/movies-* --figure agreement.png` draws the agreement at every share.

`rss-rl rationales runs/movies/all-tokens --share 0.2 --posthoc integrated-gradients` explains the
comparison trained on all tokens.

The data must say which words people marked, as eraser-movies and yelp-hat do; `rss-rl data list`
lists more. In a pair, a text without any mark does not count. The run must be of the faithful form.
`top-k`, `random` and the added columns keep the policy's mean share of words, or that of --share.

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
The methods of --posthoc are given the right class, so their selections have no accuracy.
"""


_Row = tuple[str, str, Mapping[str, float]]


def rationales(
    runs: options.RunPaths,
    split: Split = "test",
    which: options.Which = "best",
    share: Annotated[
        float | None,
        option(
            "--share",
            "Share of the words for all selections but the policy's. Default: the policy's "
            "mean share.",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    posthoc: Annotated[
        str | None,
        option(
            "--posthoc A,B",
            "Also explain the run's classifier: occlusion, occlusion-5 (five words at a "
            "time), gradient-x-input, integrated-gradients, lime. Takes minutes on long texts. "
            "policy-for-label ranks as the policy does, with words first that speak for the right "
            "class.",
        ),
    ] = None,
    scores: Annotated[
        list[Path] | None,
        option("--scores FILE", "Scores of the words by another method; repeatable."),
    ] = None,
    figure: Annotated[
        Path | None,
        option(
            "--figure FILE.png",
            "Also draw token F1 against the share of the words kept, seeds as a band.",
        ),
    ] = None,
    device: options.Device = None,
    trust_plugins: options.TrustPlugins = False,
    markdown: options.Markdown = False,
    csv_: Annotated[bool, option("--csv", "Print CSV, all measures with all digits.")] = False,
    json_: options.Json = False,
) -> None:
    """Compare the words that runs select with those that people marked."""
    if markdown + csv_ + json_ > 1:
        raise ConfigError("several output formats are given", remedy="Give one of them")
    if figure is not None and figure.suffix != ".png":
        raise ConfigError("--figure needs a .png file", where=str(figure))
    from rss_rl.results.agreement import score_run_agreement

    asked: dict[str, Any] = {
        "which": checkpoint(which),
        "share": share,
        "posthoc": list(dict.fromkeys(split_list(posthoc))),
        "files": _file_names(scores or []),
        "device": device,
        "trust": trust(trust_plugins),
    }
    found: dict[Path, dict[str, dict[str, float]]] = {}
    for run in runs:
        with counted(console(stderr=True), f"scoring {run}") as progress:
            found[run] = score_run_agreement(run, split, progress=progress, **asked)
    if figure is not None:
        _draw(figure, found, split, asked["trust"])
    if json_:
        measured = {str(run): own for run, own in found.items()}
        tree = {"split": split, "which": which, "runs": measured}
        typer.echo(json.dumps(tree, indent=2))
        return
    rows = [(str(run), choice, own[choice]) for run, own in found.items() for choice in own]
    _print(rows, markdown=markdown, csv=csv_)


def _draw(
    out: Path, found: Mapping[Path, Mapping[str, Mapping[str, float]]], split: str, trusted: Trust
) -> None:
    from rss_rl.results.agreement_figure import draw_agreement
    from rss_rl.results.comparing import group_runs, read_run
    from rss_rl.results.output import write_files

    groups = group_runs([read_run(run, trusted) for run in found])
    write_files(out.parent, {out.name: draw_agreement(found, groups, split)}, "figure")
    typer.echo(f"wrote {out}", err=True)


def _print(rows: Sequence[_Row], *, markdown: bool, csv: bool) -> None:
    from rss_rl.results.output import csv_text, markdown_table

    if csv:
        header = ["run", "selection", *sorted({name for _, _, own in rows for name in own})]
        records = [{"run": name, "selection": selection, **own} for name, selection, own in rows]
        typer.echo(csv_text(records, header), nl=False)
    elif markdown:
        typer.echo(markdown_table(*_cells(rows)))
    else:  # a column per selection and a row per measure: terminals are narrow
        header, body = _cells(rows)
        (_, *names), *lines = zip(header, *body, strict=True)
        console().print(plain_table(["", *names], lines, left=1))


def _file_names(files: Sequence[Path]) -> dict[str, Path]:
    """Column name of each file: its name, or its path if two files have the same name."""
    names = [file.name for file in files]
    named = {file.name if names.count(file.name) == 1 else str(file): file for file in files}
    if len(named) < len(files):
        raise ConfigError("a file of scores is given twice", where="--scores", remedy="Drop one")
    return named


def _cells(rows: Sequence[_Row]) -> tuple[list[str], list[list[str]]]:
    from rss_rl.results.score_cells import AGREEMENT_LABELS, format_agreement

    known = [name for name in AGREEMENT_LABELS if any(name in scores for _, _, scores in rows)]
    header = ["run", "selection", *(AGREEMENT_LABELS[name] for name in known)]
    body = [
        [run, choice, *(format_agreement(name, scores.get(name)) for name in known)]
        for run, choice, scores in rows
    ]
    return header, body
