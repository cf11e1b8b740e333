"""Many runs from one specification: planned, trained where they are missing, and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rss_rl.api.options import Address, Config, Directory, Overrides, PythonOnly, Typed
from rss_rl.api.terminal import SafeConsole, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


@dataclass(frozen=True)
class SweepResult:
    """What a sweep has so far.

    folder      of its runs and files
    frame       a line for each finished run and selection mode; also in sweep.parquet
    markdown    its table; also in sweep.md
    failed      reasons, by run
    stopped_by  the signal that stopped it, or None
    """

    folder: Path
    frame: pd.DataFrame
    markdown: str
    failed: Mapping[str, str]
    stopped_by: int | None = None


def sweep(
    spec: Annotated[Config, Typed(str)],
    overrides: Overrides = (),
    *,
    out: Directory = None,
    jobs: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    again: bool = False,
    only_read: bool = False,
    address: Address = None,
    console: PythonOnly[Console | None] = None,
) -> SweepResult:
    """Train many runs, several at a time, and compare them: tables, frontiers, grids of settings.

    Press Ctrl-C once to stop with a checkpoint of each run. The same call goes on, also after any
    kill: finished runs are kept, others resume. A run that fails ends no other.

    Args:
        spec: A YAML file, or the name of a shipped one in configs/sweeps. In Python also a mapping
            of the same form, see `rss_rl.results.sweeps.spec`.
        overrides: Keys of the specification (`seeds=2 axes.reward.target_share=[0.1,0.2]`), and
            settings of all runs (`batch_size=16`).
        out: Folder of runs and results. Default: runs/sweeps/NAME.
        jobs: Runs at a time, a core each; of several, each has a process of Ray's.
        again: Replace runs that were made with other settings or data.
        only_read: Train nothing; show what is finished.
        address: Ray cluster to use, which shares the disk of --out. Default: RAY_ADDRESS, or a new
            cluster on this machine for several jobs.
        console: for progress and the table; default: standard output.

    Raises:
        RssError: the specification is not valid, or the folder cannot be used.

    Examples:
        `rss-rl sweep sick root=DATA rows=resan,mean --jobs 2` makes a part of SICK's table.

        `rss-rl sweep shares base=demo_real` shows accuracy against the share of words kept.
    """
    from rss_rl.api.sweep_runs import Sweep, train_missing
    from rss_rl.config import settings
    from rss_rl.durable import file_lock
    from rss_rl.errors import CheckpointError
    from rss_rl.packaged import find_sweep
    from rss_rl.results.sweeps.plan import state_of
    from rss_rl.results.sweeps.report import write_sweep, written_to
    from rss_rl.results.sweeps.spec import load_spec

    shown = console or SafeConsole(highlight=False)
    file = spec if isinstance(spec, Mapping) else find_sweep(spec)
    parsed = load_spec(file, settings(overrides))
    name = file.stem if isinstance(file, Path) else "sweep"
    folder = Path(out or Path("runs") / "sweeps" / name).absolute()
    busy = CheckpointError(
        "another process makes this sweep",
        where=str(folder),
        remedy="Wait for it, stop it, or give another --out",
    )
    with written_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    signal = None
    with file_lock(folder / ".lock", busy, written_to(folder)):
        one = Sweep(parsed, folder, shown)
        if not only_read:
            signal = train_missing(one, jobs, again, address)
        states = [state_of(run) for run in one.runs]
        frame, markdown, files = write_sweep(parsed, one.runs, states, folder)
    say(shown, markdown)
    for line in [*map(str, files), *(f"failed: {run}: {why}" for run, why in one.failed.items())]:
        say(shown, line)
    if signal is not None:
        say(shown, "Stopped; the same command goes on.")
    return SweepResult(folder, frame, markdown, one.failed, signal)
