"""`rss-rl report`: the scores of runs side by side, on the terminal or as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter
from rich.console import Console

from rss_rl.api.options import TrustPlugins
from rss_rl.api.terminal import busy, plain_table, say
from rss_rl.cli.show import Markdown, console, echo, print_report
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

    Examples:
        `rss-rl report runs/demo` prints the scores of a run again.

        `rss-rl report runs/sick-seed* runs/mean-seed*` prints mean (standard deviation) over seeds.

        `rss-rl report runs/sick-seed* --html report.html` writes a page to open, send or print.

        `rss-rl report runs/sick-seed* --csv > runs.csv` has a line for each run, split and
        selection.
    """
    if markdown + csv + (html is not None) > 1:
        raise ConfigError("several output formats are given", remedy="Give one of them")
    from rss_rl.components import EVERYTHING, NOTHING
    from rss_rl.results.frame import runs_frame
    from rss_rl.runs.run_directory import RunDirectory

    trusted = EVERYTHING if trust_plugins else NOTHING
    if html is not None:
        from rss_rl.pages.report import write_report_page

        with busy(console(stderr=True), "reading") as tell:
            write_report_page(runs, html, split, trust=trusted, progress=tell)
        echo(f"wrote {html}")
        return
    frame = runs_frame(runs, trusted)
    if not frame["finished"].any():
        RunDirectory.open(runs[0]).read_report()  # raises
    if csv:
        echo(frame.to_csv(index=False).rstrip("\n"))
    elif markdown:
        _print_markdown(frame, split)
    else:
        _print(console(), frame, split)


def _print(out: Console, frame: pd.DataFrame, split: str) -> None:
    from rss_rl.results.linear import read_linear
    from rss_rl.results.score_cells import modes_note
    from rss_rl.results.sentences import run_warnings
    from rss_rl.runs.run_directory import RunDirectory

    asked = frame[frame["finished"]].groupby("run", sort=False)["reward.target_share"].first()
    reports = {Path(run): RunDirectory.open(Path(run)).read_report() for run in asked.index}
    if frame["run"].nunique() == 1:
        print_report(out, *next(iter(reports.items())))
    else:
        for heading, tables in _parts(frame, split):
            say(out, f"\n{heading}", "bold")
            for table in tables:
                say(out, f"\n{table.title}")
                out.print(plain_table(table.header, table.body, left=table.left))
        say(out, f"\n{modes_note(frame['mode'])}", "dim")
    for (run, found), share in zip(reports.items(), asked, strict=True):
        for warning in run_warnings(found, share, read_linear(run)):
            say(out, f"Warning: {run}: {warning}", "yellow")


def _print_markdown(frame: pd.DataFrame, split: str) -> None:
    from rss_rl.results.output import markdown_table

    for heading, tables in _parts(frame, split):
        echo(f"## {heading}\n")
        for table in tables:
            echo(f"{table.title}:\n\n{markdown_table(table.header, table.body)}\n")


def _parts(frame: pd.DataFrame, split: str) -> Iterator[tuple[str, Iterator[_Table]]]:
    """A heading, and tables, for each data that runs were trained on."""
    from rss_rl.results.frame import grouped, with_groups

    frame, means = with_groups(frame), grouped(frame)
    for _, runs in frame.groupby("data_sha256", sort=False):
        scores = means[means["group"].isin(runs["group"])]
        yield f"Data: {', '.join(runs['data'].unique())}", _tables(runs, scores, split)


def _tables(runs: pd.DataFrame, means: pd.DataFrame, split: str) -> Iterator[_Table]:
    from rss_rl.results.score_cells import differing_settings, line_cells, mode_cells

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
        for name, own in means.groupby("split", sort=False):
            yield _Table("Mean (standard deviation) over runs", *mode_cells(own, str(name)))
    else:
        title = f"On {split}, mean (standard deviation) over runs"
        yield _Table(title, *line_cells(means[means["split"] == split]), left=2)
