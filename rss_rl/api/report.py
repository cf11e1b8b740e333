"""Finished runs side by side, in the terminal and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from rss_rl.api.options import Runs, TrustPlugins, Typed, run_paths
from rss_rl.api.terminal import SafeConsole, busy, say

if TYPE_CHECKING:
    from pandas import DataFrame


def report(
    runs: Runs,
    *,
    split: str = "test",
    html: Annotated[str | Path | None, Typed(Path | None), Parameter(metavar="FILE")] = None,
    trust_plugins: TrustPlugins = False,
) -> DataFrame:
    """Show runs: scores, settings that differ, mean (sd) over runs with other seeds.

    Runs that differ only in the seed form a group. Groups on different data are set apart. Of a run
    that still trains, which is marked, the best scores of dev so far are shown.

    Args:
        runs: Directory of a run, or several.
        split: Split that several groups, or the page, show.
        html: Also write an HTML page: scores, curves, marked texts, words and settings.

    Returns:
        A line for each run, split and selection: every score and setting, `.to_csv("runs.csv")`.

    Raises:
        RssError: no run has scores yet, or `html` cannot be written.

    Examples:
        `rss-rl report runs/demo` prints the scores of a run again.

        `rss-rl report runs/sick-seed* runs/mean-seed*` prints mean (standard deviation) over seeds.

        `rss-rl report runs/sick-seed* --html report.html` writes a page to open, send or print.
    """
    from rss_rl.components import EVERYTHING, NOTHING
    from rss_rl.results.frame import runs_frame
    from rss_rl.runs.run_directory import RunDirectory

    paths, trusted = run_paths(runs), EVERYTHING if trust_plugins else NOTHING
    frame = runs_frame(paths, trusted)
    if not frame["mode"].notna().any():
        RunDirectory.open(paths[0]).read_report()  # raises
    if html is not None:
        from rss_rl.results.report_page import write_report_page

        out = SafeConsole(stderr=True)
        with busy(out, "reading") as tell:
            write_report_page(paths, Path(html), split, trust=trusted, progress=tell)
        say(out, f"wrote {html}")
    return frame
