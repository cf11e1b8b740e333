"""`rss-rl tune`: search for better settings of a configuration, by dev scores only."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.options import argument, console, option
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rss_rl.cluster.tuning import Progress
    from rss_rl.results.tuning.study import Study

EPILOG = """
Examples:

`rss-rl tune policy own data=data/reviews reward.target_share=0.3 --out runs/tune --minutes 60`
tries settings of the policy for one core hour. It ends with the best trials next to the
configuration as it is, and with what mattered.

`rss-rl tune policy own data=data/reviews reward.target_share=0.3 --out runs/tune --minutes 120`
continues the same search for another hour.

`rss-rl tune mine.yaml sick --dry-run` checks a search space of your own and shows what would be
tried. A space has a line for each key:

```yaml
sampler.selections: {choice: [4, 8, 16]}
learner.policy.learning_rate: {log: [5.0e-4, 1.0e-2]}
model.dropout: {uniform: [0, 0.6]}
policy.options.hidden: {integer: [50, 200]}
```

`rss-rl train runs/tune/best.yaml seed=1` trains with what was found.

Press Ctrl-C once to stop with a checkpoint of each trial; the same command resumes them.
"""


def tune(
    space: Annotated[
        str,
        argument(
            "SPACE", "A shipped search space (policy, classifier), or a YAML file of your own."
        ),
    ],
    config: options.ConfigName,
    overrides: options.Overrides = None,
    out: Annotated[Path, option("--out DIR", "Folder for trials and results.")] = Path("runs/tune"),
    minutes: Annotated[
        float,
        option(
            "--minutes",
            "Core minutes for all trials together, including those of earlier calls. After"
            " that, no new trial starts.",
            min=0.0,
        ),
    ] = 60.0,
    jobs: Annotated[
        int, typer.Option("--jobs", "--concurrent", min=1, help="Trials at a time, a core each.")
    ] = 1,
    seeds: Annotated[int, option("--seeds", "Runs of each trial; their mean counts.", min=1)] = 1,
    address: Annotated[
        str | None,
        option(
            "--address HOST:PORT",
            "Ray cluster to use, which shares the disk of --out. Default: RAY_ADDRESS, or a"
            " new cluster on this machine.",
        ),
    ] = None,
    insecure: options.Insecure = False,
    only_read: options.OnlyRead = False,
    dry_run: options.DryRun = False,
) -> None:
    """Search for better settings: try some, stop the worse ones early, say what mattered.

    Trials are compared on dev and never scored on test. The first is the configuration as it is.
    """
    from rss_rl.packaged import find_config, find_space
    from rss_rl.results.tuning.report import write_search
    from rss_rl.results.tuning.space import load_base, load_space
    from rss_rl.results.tuning.study import open_study

    shown = console()
    base = load_base(find_config(config), overrides or [])
    found = load_space(find_space(space), base)
    study = open_study(out, found, base, seeds, begin=not (dry_run or only_read))
    if dry_run:
        _show_plan(study, minutes, shown)
        return
    stopped = None
    if not only_read and not study.over(60 * minutes):
        stopped = _train(study, jobs, 60 * minutes, address, insecure, shown)
    if study.records():
        for file in write_search(study, typer.echo):
            say(shown, str(file))
    if stopped is not None:
        shown.print("Stopped; the same command resumes the trials.")
        raise typer.Exit(stopped)


def _show_plan(study: Study, minutes: float, out: Console) -> None:
    from itertools import islice

    say(out, f"Trials of {study.updates} counted updates, {minutes:g} core minutes.")
    rungs = ", ".join(map(str, study.rungs)) or "none"
    say(out, f"Updates at which the worse trials are stopped: {rungs}. The first trials:")
    for trial in islice(study.trials(), 6):
        settings = "  ".join(f"{key}={value}" for key, value in trial.settings.items())
        say(out, f"  {trial.number:03}  {settings or 'the configuration as it is'}")


def _train(
    study: Study, jobs: int, budget_s: float, address: str | None, insecure: bool, out: Console
) -> int | None:
    """Train the trials; the exit code after a signal, or None."""
    from rss_rl.api.interruption import Interruption
    from rss_rl.cli.table_progress import say_stopping
    from rss_rl.cluster.connection import connected

    _check_installed()
    note = partial(say, out)
    with (
        study.locked(),
        Interruption(say_stopping) as interruption,
        connected(note, address, cores=jobs, insecure=insecure),
    ):
        from rss_rl.cluster.tuning import search

        for news in search(study, jobs, budget_s, interruption.asked):
            _show(study, news, budget_s, out)
    return interruption.exit_code if interruption.asked() else None


def _check_installed() -> None:
    """Check that Ray Tune's dependencies are installed, before a cluster is started.

    Raises:
        ConfigError: naming the extra to install.
    """
    missing = [name for name in ("pandas", "tensorboardX") if not find_spec(name)]
    if missing:
        raise ConfigError(
            f"Ray Tune needs {' and '.join(missing)}, which are not installed",
            remedy="Install rss-rl[tune]",
        )


def _show(study: Study, news: Progress, budget_s: float, out: Console) -> None:
    """Print a progress line of a trial."""
    from rss_rl.results.output import describe_scores
    from rss_rl.results.tuning.trial import points

    record = news.record
    found = points(record)
    parts = [f"trial {record.number:03}"]
    if news.ended:
        state = "interrupted" if record.state == "running" else record.state
        parts.append(f"{state}: {record.reason}" if record.reason else state)
    if found:
        last = found[-1]
        value, kept = (last.best, last.best_kept) if news.ended else (last.value, last.kept)
        scores = {"kept": kept}
        if value is not None:
            scores = {study.metric.name: value} | scores
        progress = f"{last.progress}/{study.updates}"
        parts.append(
            f"after {progress}, best of {last.phase}:" if news.ended else f"{last.phase} {progress}"
        )
        parts.append(describe_scores(scores))
    parts.append(f"[{news.spent_s / 60:.1f} of {budget_s / 60:g} min]")
    say(out, "  ".join(parts))
    out.file.flush()
