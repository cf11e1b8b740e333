"""`rss-rl train`: begin a run, or go on with one."""

from __future__ import annotations

__all__ = ["EPILOG", "train"]

from pathlib import Path
from typing import Annotated

import typer

from rss_rl.cli.ending import end
from rss_rl.cli.options import Json, Overrides, TrustPlugins, console

EPILOG = """
Examples:

`rss-rl train sick data=data/sick` trains in `runs/sick-seed0`.

`rss-rl train sick seed=3 sampler.backend=ray sampler.actors=4 --run-dir runs/third`

`rss-rl train --resume runs/third` goes on where a run was stopped or killed.

`rss-rl train sick --run-dir runs/a --storage s3://bucket/a --resume` copies the run to the storage
as it goes, and on a new machine goes on with what is there.

Press Ctrl-C once to stop after the present update with a checkpoint, twice to quit at once.
`rss-rl config show` documents all settings.
"""

Start = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG|RUN",
        help="A YAML file, a name that `rss-rl config list` shows, or with --resume the directory "
        "of a run.",
    ),
]
RunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir", metavar="DIR", help="Directory of the run. Default: runs/CONFIG-seedSEED."
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from the last checkpoint, where there is one.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a run that is in the directory already.")
]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URI",
        help="Directory or URI (s3://, gs://, ...) that gets a copy of the run at each checkpoint; "
        "with --resume a machine without the run gets it from there.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Write to --storage though another process seems to; it has stopped."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Ray cluster to work on, or 'auto' for the one that runs on this machine. Default: "
        "RAY_ADDRESS, or a cluster that is started here and ends with the run.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Work even on a cluster that lets in anybody without a token."),
]
Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Start Ray's dashboard too, on 127.0.0.1:8265.")
]

Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="DURATION",
        help="Bound of the training, such as 90s, 5m or 2h, shared out among the phases.",
    ),
]


def train(
    config: Start,
    overrides: Overrides = None,
    run_dir: RunDir = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    storage: Storage = None,
    take_over: TakeOver = False,
    address: Address = None,
    insecure: Insecure = False,
    dashboard: Dashboard = False,
    time: Time = None,
    trust_plugins: TrustPlugins = False,
    json_: Json = False,
) -> None:
    """Train a classifier and its selection policy; ends in a table of dev and test scores."""
    from rss_rl.api.training import Joining
    from rss_rl.api.training import train as train_run

    out = console(stderr=json_)
    run = train_run(
        config,
        overrides or [],
        out=run_dir,
        resume=resume,
        overwrite=overwrite,
        storage=storage,
        take_over=take_over,
        time=time,
        joining=Joining(address, insecure, dashboard),
        trust_plugins=trust_plugins,
        console=out,
    )
    end(run, out, as_json=json_)
