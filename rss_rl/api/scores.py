"""Reports as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from rss_rl.api.terminal import plain_table, say, shell
from rss_rl.results.linear import read_linear
from rss_rl.results.score_cells import mode_cells, modes_frame, modes_note
from rss_rl.results.sentences import linear_sentence


def print_report(out: Console, run: Path, report: Mapping[str, Any]) -> None:
    """Print the final report of a run, and commands to continue with."""
    for split, modes in report["splits"].items():
        out.print(plain_table(*mode_cells(modes_frame(modes), split), left=1), "")
    say(out, modes_note(mode for modes in report["splits"].values() for mode in modes), "dim")
    say(
        out,
        f"{report['parameters']:,} parameters without embeddings; {report['steps']:,} updates, "
        f"best on dev at {report['best_step']:,}; {report['wall_seconds']:,.0f} s, "
        f"{report['examples_per_second']:,.0f} examples/s; seed {report['seed']}",
    )
    every = [scores for modes in report["splits"].values() for scores in modes.values()]
    if any("rationale_f1" in scores for scores in every):
        say(
            out,
            "precision, recall, F1: the kept tokens compared with those that decide the label; "
            "random F1: the same for as many random tokens",
            "dim",
        )
    for split in report["splits"]:
        if (plain := linear_sentence(read_linear(run), split)) is not None:
            say(out, f"\n{split}: {plain}")
    say(out, f"\nRun:     {run}")
    say(out, f"Curves:  {shell('tensorboard', '--logdir', run)}")
    say(out, f'Try it:  {shell("rss-rl", "select", run)} "..."')
