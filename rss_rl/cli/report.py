"""`rss-rl report`: the scores of runs side by side, on the terminal or as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter
from rich.console import Console

from rss_rl.api.options import TrustPlugins
from rss_rl.api.terminal import plain_table, say
from rss_rl.cli.show import Markdown, console, echo
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


class _Table(NamedTuple):
    """The first `left` columns are aligned on the left on a terminal."""

    title: str
    header: list[str]
    body: list[list[str]]
    left: int = 1


def report(
    runs: Annotated[list[Path], Parameter(name="RUN")],
    *,
    markdown: Markdown = False,
    csv: bool = False,
    html: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    split: str = "test",
    folds: bool = False,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Show finished runs: scores, settings that differ, mean (sd) over runs with other seeds.

    Runs that differ only in the seed form a group. Groups on different data are set apart.

    Args:
        runs: Directory of a run, or several.
        csv: Print CSV: every score and setting of every run.
        html: Write an HTML page: scores, curves, marked texts, words, agreement with people,
            settings and data.
        split: Split that several groups, or the page, show.
        folds: On the terminal and in Markdown: runs on other data are folds of one comparison. Each
            fold's mean over its seeds counts once.

    Examples:
        `rss-rl report runs/demo` prints the scores of a run again.

        `rss-rl report runs/sick-seed* runs/mean-seed*` prints mean (standard deviation) over seeds.

        `rss-rl report runs/sick-seed* --html report.html` writes a page to open, send or print.

        `rss-rl report runs/sick-seed* --csv > runs.csv` has a line for each run, split and
        selection.
    """
    if markdown + csv + (html is not None) > 1:
        raise ConfigError("several output formats are given", remedy="Give one of them")
    if folds and (csv or html):
        raise ConfigError("--folds is not for --csv or --html", remedy="Leave it out")
    from rss_rl.components import EVERYTHING, NOTHING

    trusted = EVERYTHING if trust_plugins else NOTHING
    if html is not None:
        from rss_rl.pages.report import write_report_page

        with console(stderr=True).status("reading") as status:
            write_report_page(runs, html, split, trust=trusted, progress=status.update)
        echo(f"wrote {html}")
        return
    from rss_rl.results.frame import runs_frame
    from rss_rl.runs.run_directory import RunDirectory

    frame = runs_frame(runs, trusted)
    if not frame["finished"].any():
        RunDirectory.open(runs[0]).read_report()  # raises
    if csv:
        echo(frame.to_csv(index=False).rstrip("\n"))
    elif markdown:
        echo(_markdown(frame, split, folds))
    else:
        _print(console(), frame, split, folds)


def _print(out: Console, frame: pd.DataFrame, split: str, folds: bool) -> None:
    from rss_rl.api.scores import print_report
    from rss_rl.results.linear import read_linear
    from rss_rl.results.score_cells import modes_note
    from rss_rl.results.sentences import run_warnings
    from rss_rl.runs.run_directory import RunDirectory

    reports = {
        Path(path): RunDirectory.open(Path(path)).read_report()
        for path in frame.loc[frame["finished"], "run"].unique()
    }
    if frame["run"].nunique() == 1:
        ((path, record),) = reports.items()
        print_report(out, path, record)
    else:
        for heading, tables in _parts(frame, split, folds):
            say(out, f"\n{heading}", "bold")
            for table in tables:
                say(out, f"\n{table.title}")
                out.print(plain_table(table.header, table.body, left=table.left))
        say(out, f"\n{modes_note(frame['mode'])}", "dim")
    for path, record in reports.items():
        asked = frame.loc[frame["run"] == str(path), "reward.target_share"].iloc[0]
        for warning in run_warnings(record, asked, read_linear(path)):
            say(out, f"Warning: {path}: {warning}", "yellow")


def _markdown(frame: pd.DataFrame, split: str, folds: bool) -> str:
    from rss_rl.results.output import markdown_table

    texts = []
    for heading, tables in _parts(frame, split, folds):
        texts.append(f"## {heading}")
        texts += [
            f"{table.title}:\n\n{markdown_table(table.header, table.body)}" for table in tables
        ]
    return "\n\n".join(texts)


def _parts(frame: pd.DataFrame, split: str, folds: bool) -> Iterator[tuple[str, Iterator[_Table]]]:
    """A heading, and tables, for each data that runs were trained on."""
    from rss_rl.results.frame import grouped, with_groups

    over = ("seed", "data") if folds else ("seed",)
    frame, means = with_groups(frame, over), grouped(frame, over)
    parts = [frame] if folds else [own for _, own in frame.groupby("data_sha256", sort=False)]
    for runs in parts:
        scores = means[means["group"].isin(runs["group"])]
        yield f"Data: {', '.join(runs['data'].unique())}", _tables(runs, scores, split)


def _tables(runs: pd.DataFrame, scores: pd.DataFrame, split: str) -> Iterator[_Table]:
    from rss_rl.metrics.measures import find_measure
    from rss_rl.results.score_cells import (
        differing_settings,
        group_cells,
        mode_cells,
        shown_scores,
    )

    members = []
    for group, own in runs.groupby("group"):
        finished, paths = own.loc[own["finished"], "run"].nunique(), own["run"].unique()
        others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        members.append([str(group), f"{finished} of {len(paths)}", f"{paths[0]}{others}"])
    title = "Groups: runs that differ only in the seed"
    yield _Table(title, ["group", "finished", "runs"], members, left=3)
    settings = differing_settings(runs)
    if len(settings):
        body = [[key, *values] for key, *values in settings.itertuples()]
        yield _Table("Settings that differ", ["setting", *map(str, settings)], body)
    if len(members) == 1:
        for name, own in scores.groupby("split", sort=False):
            yield _Table("Mean (standard deviation) over runs", *mode_cells(own, str(name)))
        return
    own = scores[scores["split"] == split]
    for measure in map(find_measure, shown_scores(own)):
        if measure.brief:
            title = f"{measure.label} on {split}, mean (standard deviation) over runs"
            yield _Table(title, *group_cells(own, measure.name, "group"))
