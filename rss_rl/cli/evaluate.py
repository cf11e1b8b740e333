"""`rss-rl evaluate` and `rss-rl report`: the scores of a run."""

from __future__ import annotations

__all__ = ["EVALUATE_EPILOG", "REPORT_EPILOG", "evaluate", "report"]

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rss_rl.api.terminal import plain_table, say
from rss_rl.cli import options
from rss_rl.cli.options import checkpoint, console, option, trust
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rss_rl.training.evaluation import Mode

EVALUATE_EPILOG = """
Examples:

`rss-rl evaluate runs/demo` scores the test split as the final report does.

`rss-rl evaluate runs/demo --split dev --mode thresholded --which latest --json`
"""
REPORT_EPILOG = """
Examples:

`rss-rl report runs/demo`

`rss-rl report runs/sick-seed*` prints mean (standard deviation) over the runs.

`rss-rl report runs/sick-seed* --html report.html` writes a page to open, send or print.

`rss-rl report runs/demo --json` prints `runs/demo/report.json`.
"""


class ModeName(StrEnum):
    """Selection modes; a copy of `rss_rl.training.evaluation.MODES`, which would import torch."""

    all = "all"
    thresholded = "thresholded"
    sampled = "sampled"
    random = "random"


Split = Annotated[str, option("--split", "Split to score: dev, test, train.")]


def evaluate(
    run: options.RunPath,
    split: Split = "test",
    mode: Annotated[
        list[ModeName] | None,
        option(
            "--mode",
            "How tokens are selected; repeatable. `all` is the comparison trained on "
            "all tokens. Default: all modes of the run.",
        ),
    ] = None,
    which: options.Which = "best",
    device: options.Device = None,
    trust_plugins: options.TrustPlugins = False,
    json_: options.Json = False,
) -> None:
    """Score a split with a checkpoint of a run."""
    from rss_rl.api.run import Run
    from rss_rl.api.scores import scores_table

    asked: list[Mode] | None = [item.value for item in mode] if mode else None
    opened = Run(run, trust_plugins=trust_plugins)
    found = opened.scores(split, asked, checkpoint(which), device)
    steps = {name: step for name, (step, _) in found.items()}
    ordered: dict[str, Any] = {name: scores for name, (_, scores) in found.items()}
    if json_:
        record = {"run": str(run), "split": split, "which": which, "steps": steps, "modes": ordered}
        typer.echo(json.dumps(record, indent=2))
        return
    out = console()
    out.print(scores_table({split: ordered}))
    updates = ", ".join(map(str, dict.fromkeys(steps.values())))
    out.print(f"checkpoint: {which}, of update {updates}")


def report(
    runs: options.RunPaths,
    html: Annotated[
        Path | None,
        option(
            "--html FILE",
            "Write an HTML page: scores, curves, marked texts, words, agreement with "
            "people, settings and data. Here, runs may differ in more than the seed.",
        ),
    ] = None,
    split: Annotated[str, option("--split", "Split that the page of --html shows.")] = "test",
    trust_plugins: options.TrustPlugins = False,
    json_: options.Json = False,
    markdown: options.Markdown = False,
) -> None:
    """Print the final report of a run again, or the mean (sd) over runs with different seeds."""
    if html is not None:
        if json_ or markdown:
            raise ConfigError("several output formats are given", remedy="Give one of them")
        from rss_rl.pages.report import write_report_page

        with console(stderr=True).status("reading") as status:
            trusted = trust(trust_plugins)
            write_report_page(runs, html, split, trust=trusted, progress=status.update)
        typer.echo(f"wrote {html}")
        return
    from rss_rl.api.scores import print_report
    from rss_rl.results.sentences import kept_warning
    from rss_rl.runs.run_directory import RunDirectory

    opened = [RunDirectory.open(run) for run in runs]
    records = [each.read_report() for each in opened]
    if len(runs) > 1 or markdown:
        _print_summary(records, json_, markdown)
        return
    (run,), (record,) = runs, records
    if json_:
        typer.echo(json.dumps(record, indent=2))
    else:
        print_report(console(), run, record)
        asked = opened[0].config.get("reward", {}).get("target_share")
        if warning := kept_warning(record, asked):
            say(console(), f"Warning: {warning}", "yellow")


def _print_summary(records: list[dict[str, Any]], json_: bool, markdown: bool) -> None:
    from rss_rl.results.output import markdown_table
    from rss_rl.results.score_cells import summary_cells
    from rss_rl.results.summary import summarise

    rows = summarise(records)
    if json_:
        tree: dict[str, Any] = {}
        for split, mode, scores in rows:
            named = {name: spread._asdict() for name, spread in scores.items()}
            tree.setdefault(split, {})[mode] = named
        typer.echo(json.dumps({"runs": len(records), "splits": tree}, indent=2))
    elif markdown:
        typer.echo(markdown_table(*summary_cells("split", rows)))
    else:
        console().print(plain_table(*summary_cells("split", rows), left=2))
