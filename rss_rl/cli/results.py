"""`rss-rl evaluate` and `rss-rl report`: the numbers of a run."""

from __future__ import annotations

__all__ = ["EVALUATE_EPILOG", "REPORT_EPILOG", "evaluate", "report"]

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rss_rl.cli.options import Json, RunPath, TrustPlugins, console, trust
from rss_rl.cli.tables import print_report, scores_table
from rss_rl.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from rss_rl.components import Trust
    from rss_rl.config import RunConfig
    from rss_rl.runtime.evaluation import Mode

EVALUATE_EPILOG = """
Examples:

`rss-rl evaluate runs/demo` scores the test split as the final report does.

`rss-rl evaluate runs/demo --split dev --mode thresholded --which latest --json`
"""
REPORT_EPILOG = """
Examples:

`rss-rl report runs/demo`

`rss-rl report runs/sick-seed*` prints mean (standard deviation) over the runs.

`rss-rl report runs/demo --json` prints what stands in `runs/demo/report.json`.
"""


RunPaths = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Directory of a run, or several.")
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]


class ModeName(StrEnum):
    """The ways to select; the names of `rss_rl.runtime.evaluation.MODES`, which costs torch."""

    all = "all"
    thresholded = "thresholded"
    sampled = "sampled"
    random = "random"


Split = Annotated[str, typer.Option("--split", help="Split to score: dev, test, train.")]
Modes = Annotated[
    list[ModeName] | None,
    typer.Option(
        "--mode",
        help="How tokens are selected; repeatable. `all` is the comparison trained with every "
        "token. Default: all that the run has.",
    ),
]
Which = Annotated[
    str, typer.Option("--which", metavar="best|latest|STEP", help="Checkpoint to score.")
]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda, ... Default: as the run trained.")
]


def evaluate(
    run: RunPath,
    split: Split = "test",
    mode: Modes = None,
    which: Which = "best",
    device: Device = None,
    trust_plugins: TrustPlugins = False,
    json_: Json = False,
) -> None:
    """Score a split with a checkpoint of a run."""
    trusted = trust(trust_plugins)
    asked: list[Mode] = [item.value for item in mode or []] or _modes_of(run, trusted)
    scores: dict[str, Any] = {}
    steps: dict[str, int] = {}
    for place in dict.fromkeys(_place(run, name, trusted) for name in asked):
        here = [name for name in asked if _place(run, name, trusted) == place]
        step, metrics = _score(place, split, here, which, device, trusted)
        scores |= metrics
        steps |= dict.fromkeys(here, step)
    ordered: dict[str, Any] = {name: scores[name] for name in asked}
    if json_:
        record = {"run": str(run), "split": split, "which": which, "steps": steps, "modes": ordered}
        typer.echo(json.dumps(record, indent=2))
        return
    out = console()
    out.print(scores_table({split: ordered}))
    out.print(
        f"checkpoint: {which}, of update {', '.join(map(str, dict.fromkeys(steps.values())))}"
    )


def _modes_of(run: Path, trusted: Trust) -> list[Mode]:
    if not _samples(_config(run, trusted)):
        return ["all"]
    compared: list[Mode] = ["all"] if _comparison(run).is_dir() else []
    return [*compared, "thresholded", "sampled", "random"]


def _config(run: Path, trusted: Trust) -> RunConfig:
    from rss_rl.config import parse_config
    from rss_rl.runtime.run_directory import RunDirectory

    where = str(run / "config.json")
    return parse_config(RunDirectory.open(run).config, where=where, trust=trusted)


def _samples(config: RunConfig) -> bool:
    return config.phases[-1].selection == "sampled"


def _comparison(run: Path) -> Path:
    from rss_rl.runtime.run import ALL_TOKENS

    return run / ALL_TOKENS


def _place(run: Path, mode: Mode, trusted: Trust) -> Path:
    """Where the models of a mode are.

    Every token selected means the comparison that was trained so; weights that were trained on
    selections are never scored with all tokens.
    """
    if not _samples(_config(run, trusted)):
        if mode != "all":
            raise ConfigError(
                f"the run has no policy to select with, so no '{mode}' selection",
                where=str(run),
                remedy="Use --mode all",
            )
        return run
    if mode != "all":
        return run
    place = _comparison(run)
    if not (place / "config.json").is_file():
        raise CheckpointError(
            "the run has no comparison trained with all tokens",
            where=str(place),
            remedy="Finish the run, with evaluation.all_tokens=true",
        )
    return place


def _score(
    place: Path,
    split: str,
    modes: list[Mode],
    which: str,
    device: str | None,
    trusted: Trust,
) -> tuple[int, dict[str, Any]]:
    from rss_rl.runtime.reading import score_run

    checkpoint = int(which) if which.isdecimal() else which
    return score_run(place, split, modes, which=checkpoint, device=device, trust=trusted)


def report(runs: RunPaths, json_: Json = False, markdown: Markdown = False) -> None:
    """Print the final report of a run again, or mean (sd) over the runs of several seeds."""
    from rss_rl.runtime.run_directory import RunDirectory

    records = [RunDirectory.open(run).read_report() for run in runs]
    if len(runs) > 1 or markdown:
        _print_summary(records, json_, markdown)
        return
    (run,), (record,) = runs, records
    if json_:
        typer.echo(json.dumps(record, indent=2))
    else:
        print_report(console(), run, record)


def _print_summary(records: list[dict[str, Any]], json_: bool, as_markdown: bool) -> None:
    from rss_rl.cli.summary import markdown, summarise, summary_table

    rows = summarise(records)
    if json_:
        tree: dict[str, Any] = {}
        for split, mode, scores in rows:
            named = {name: spread._asdict() for name, spread in scores.items()}
            tree.setdefault(split, {})[mode] = named
        typer.echo(json.dumps({"runs": len(records), "splits": tree}, indent=2))
    elif as_markdown:
        typer.echo(markdown(rows))
    else:
        console().print(summary_table(rows))
