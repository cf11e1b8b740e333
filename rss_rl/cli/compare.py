"""`rss-rl compare`: settings, scores and significance of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from rss_rl.api.terminal import plain_table, say
from rss_rl.cli import options
from rss_rl.cli.options import console, option, trust

if TYPE_CHECKING:
    from rss_rl.results.comparing import Difference, Group
    from rss_rl.results.summary import Spread

EPILOG = """
Examples:

`rss-rl compare runs/lambda-0.1-seed-* runs/lambda-1-seed-*` groups runs that differ only in the
seed, and tests the difference between the groups over the seeds that they share.

`rss-rl compare runs/a runs/b --out comparison` also writes `compare.md` and `curves.png` there.
"""


class _Part(NamedTuple):
    """A table of the comparison, with a note about missing values."""

    title: str
    header: list[str]
    body: list[list[str]]
    note: str = ""


def compare(
    runs: options.RunPaths,
    split: Annotated[str, option("--split", "Split whose scores are compared.")] = "test",
    markdown: options.Markdown = False,
    out: Annotated[
        Path | None, option("--out DIR", "Write compare.md and curves.png into it.")
    ] = None,
    trust_plugins: options.TrustPlugins = False,
) -> None:
    """Compare runs: settings, scores with their spread, significance over seeds, curves."""
    from rss_rl.results.comparing import group_runs, read_run

    groups = group_runs([read_run(run, trust(trust_plugins)) for run in runs])
    parts = [_members(groups), _settings(groups), _scores(groups, split), _tests(groups, split)]
    if markdown:
        typer.echo(_markdown(parts))
    else:
        shown = console()
        for part in parts:
            _print(shown, part)
    if out is not None:
        _write(out, groups, _markdown(parts))


def _members(groups: Sequence[Group]) -> _Part:
    body = [
        [group.name, str(len(group.finished())), str(len(group.runs)), _paths(group)]
        for group in groups
    ]
    return _Part("Runs", ["group", "finished", "runs", "directories"], body)


def _paths(group: Group) -> str:
    first, *others = (str(run.path) for run in group.runs)
    return first if not others else f"{first} and {len(others)} more"


def _settings(groups: Sequence[Group]) -> _Part:
    from rss_rl.results.comparing import config_differences

    names = [group.name for group in groups]
    body = [[key, *values] for key, values in config_differences(groups)]
    return _Part("Settings that differ", ["setting", *names], body)


def _scores(groups: Sequence[Group], split: str) -> _Part:
    """Mean (sd) over the runs of each group, by selection mode."""
    from rss_rl.results.score_cells import summary_cells
    from rss_rl.results.summary import summarise

    rows: list[tuple[str, str, dict[str, Spread]]] = []
    for group in groups:
        if reports := [run.report for run in group.finished() if run.report is not None]:
            summary = summarise(reports)
            rows += [(group.name, mode, scores) for name, mode, scores in summary if name == split]
    return _Part(f"Scores of {split}", *summary_cells("group", rows))


def _tests(groups: Sequence[Group], split: str) -> _Part:
    from rss_rl.metrics.measures import find_measure
    from rss_rl.results.comparing import main_score, paired
    from rss_rl.results.score_cells import MODE_NAMES

    header = ["against A", "metric", "selection", "n"]
    header += ["difference", "t-test p", "exact p", "verdict"]
    title = "Significance over seeds"
    tested = [group for group in groups if group.finished()]
    note = _untested(groups, tested)
    chosen = main_score(tested, split)
    if len(tested) < 2 or tested[0] is not groups[0]:
        return _Part(title, header, [], note)
    if chosen is None:
        note = f"The groups share no metric of {split}, so no test. {note}".strip()
        return _Part(title, header, [], note)
    metric, modes = chosen
    body = []
    for other in tested[1:]:
        found = paired(groups[0], other, split, metric, modes)
        ways = list(dict.fromkeys(MODE_NAMES[modes[g.name]] for g in (other, groups[0])))
        seeds = str(len(found.seeds))
        cells = [other.name, find_measure(metric).label, " against ".join(ways), seeds]
        body.append([*cells, _gap(found), _p(found.t_test), _p(found.permutation), _verdict(found)])
    return _Part(title, header, body, note)


def _untested(groups: Sequence[Group], tested: Sequence[Group]) -> str:
    """A note on the groups that cannot be tested, and why."""
    left_out = [group.name for group in groups if group not in tested]
    if not left_out:
        return ""
    some = "Group" if len(left_out) == 1 else "Groups"
    verb = "has" if len(left_out) == 1 else "have"
    reason = f"{some} {', '.join(left_out)} {verb} no finished run, so no test"
    everything = ": all others are compared with A" if groups[0].name in left_out else ""
    return f"{reason}{everything}. Finish one with rss-rl train --resume RUN."


def _gap(found: Difference) -> str:
    from rss_rl.metrics.measures import format_measure

    if found.mean is None:
        return "-"
    sign = "+" if found.mean >= 0 else "-"
    return sign + format_measure(found.metric, abs(found.mean))


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _verdict(found: Difference) -> str:
    """The conclusion at a significance level of 5%."""
    from rss_rl.results.comparing import FEWEST

    if len(found.seeds) < FEWEST:
        return f"no claim: seeds in common: {len(found.seeds)}, at least {FEWEST} are needed"
    assert found.mean is not None
    if found.t_test is None:
        return "no difference" if found.mean == 0 else "no claim: all differences are the same"
    if found.t_test >= 0.05:
        return "no significant difference"
    better = (found.mean < 0) == found.lower_is_better
    least = 2 / 2 ** len(found.seeds)
    weak = f", though the exact p cannot be below {least:.3g}" if least >= 0.05 else ""
    return f"{'better' if better else 'worse'} than A (p < 0.05{weak})"


def _markdown(parts: Sequence[_Part]) -> str:
    from rss_rl.results.output import markdown_table

    texts = []
    for part in parts:
        texts.append(f"## {part.title}")
        if part.body:
            texts.append(markdown_table(part.header, part.body))
        if part.note or not part.body:
            texts.append(part.note or "None.")
    texts.append(
        "Runs that differ only in the seed form one group. Scores are mean (sample standard "
        "deviation). Tests are paired over the seeds that both groups have: a t-test, and an "
        "exact sign-flip test. p is not corrected for comparing several groups with A."
    )
    return "\n\n".join(texts) + "\n"


def _print(out: Console, part: _Part) -> None:
    say(out, f"\n{part.title}", "bold")
    if part.body:
        out.print(plain_table(part.header, part.body))
    if part.note or not part.body:
        say(out, part.note or "none", "dim")


def _write(folder: Path, groups: Sequence[Group], markdown: str) -> None:
    from rss_rl.results.comparing import draw_curves
    from rss_rl.results.output import write_files

    curves = draw_curves(groups)
    contents: dict[str, str | bytes] = {"compare.md": markdown}
    if curves is not None:
        contents = {"compare.md": f"{markdown}\n![curves](curves.png)\n", "curves.png": curves}
    write_files(folder, contents, "comparison")
