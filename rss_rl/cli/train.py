"""`rss-rl train`: start or resume a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rss_rl.cli import options
from rss_rl.cli.options import argument, console, end_run, option

EPILOG = """
Examples:

`rss-rl train sick data=data/sick` trains in `runs/sick-seed0`.

`rss-rl train sick seed=3 sampler.backend=ray sampler.actors=4 --run-dir runs/third`

`rss-rl train --resume runs/third` resumes a run that was stopped or killed.

`rss-rl train sick --run-dir runs/a --storage s3://bucket/a --resume` copies the run to the storage
while it trains. On a new machine it resumes from there.

Press Ctrl-C once to stop after the current update with a checkpoint, twice to quit immediately.
`rss-rl config show` documents all settings.
"""


def train(
    config: Annotated[
        str,
        argument(
            "CONFIG|RUN",
            "A YAML file, a name that `rss-rl config list` shows, or with --resume the "
            "directory of a run.",
        ),
    ],
    overrides: options.Overrides = None,
    run_dir: Annotated[
        Path | None, option("--run-dir DIR", "Directory of the run. Default: runs/CONFIG-seedSEED.")
    ] = None,
    resume: Annotated[
        bool, option("--resume", "Resume from the last checkpoint, if there is one.")
    ] = False,
    overwrite: options.Overwrite = False,
    storage: Annotated[
        str | None,
        option(
            "--storage URI",
            "Directory or URI (s3://, gs://, ...) to copy the run to at each checkpoint. "
            "With --resume, a machine without the run fetches it from there.",
        ),
    ] = None,
    take_over: options.TakeOver = False,
    address: Annotated[
        str | None,
        option(
            "--address HOST:PORT",
            "Ray cluster to use, or 'auto' for the one running on this machine. Default: "
            "RAY_ADDRESS, or a new cluster on this machine that ends with the run.",
        ),
    ] = None,
    insecure: options.Insecure = False,
    dashboard: Annotated[
        bool, option("--dashboard", "Start Ray's dashboard too, on 127.0.0.1:8265.")
    ] = False,
    time: options.Time = None,
    trust_plugins: options.TrustPlugins = False,
    json_: options.Json = False,
) -> None:
    """Train a classifier and its selection policy, and print their dev and test scores."""
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
    end_run(run, out, as_json=json_)
