"""`rss-rl sweep`: train many runs from one specification, and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rss_rl.cli import options
from rss_rl.cli.options import argument, console, option

EPILOG = """
Examples:

`rss-rl sweep sick root=DATA rows=resan,mean --jobs 2` makes a part of SICK's table.

`rss-rl sweep shares base=demo_real` draws accuracy against the share of words kept.

`rss-rl sweep search data=data/reviews search.minutes=60` searches for better settings.

Press Ctrl-C once to stop with a checkpoint of each run; the same command goes on.
"""


def sweep(
    spec: Annotated[
        str, argument("SPEC", "A YAML file, or the name of a shipped one in configs/sweeps.")
    ],
    overrides: Annotated[
        list[str] | None,
        argument(
            "[KEY=VALUE]...",
            "Keys of the specification (`seeds=2 axes.reward.target_share=[0.1,0.2]`), and settings"
            " of all runs (`batch_size=16`).",
        ),
    ] = None,
    out: Annotated[
        Path | None, option("--out DIR", "Folder of runs and results. Default: runs/sweeps/NAME.")
    ] = None,
    jobs: Annotated[int, option("--jobs", "Runs at a time, a core each.", min=1)] = 1,
    address: Annotated[
        str | None,
        option(
            "--address HOST:PORT",
            "Ray cluster to use, which shares the disk of --out. Default: RAY_ADDRESS, or a new"
            " cluster on this machine.",
        ),
    ] = None,
    insecure: options.Insecure = False,
    again: Annotated[
        bool, option("--again", "Replace runs that were made with other settings or data.")
    ] = False,
    only_read: options.OnlyRead = False,
) -> None:
    """Train many runs, several at a time, and compare them: tables, frontiers, searches."""
    from rss_rl.api.sweeping import sweep as make_sweep
    from rss_rl.api.training import Joining

    result = make_sweep(
        spec,
        overrides or [],
        out=out,
        jobs=jobs,
        again=again,
        only_read=only_read,
        joining=Joining(address, insecure),
        console=console(),
    )
    if result.stopped_by is not None:
        raise typer.Exit(128 + result.stopped_by)
    if result.failed:
        raise typer.Exit(1)
