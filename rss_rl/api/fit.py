"""From a table to a trained model in one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from cyclopts import Parameter
from cyclopts.validators import Number

from rss_rl.api.options import (
    Directory,
    Duration,
    NeededColumn,
    Overrides,
    PythonOnly,
    Rows,
    TableOptions,
    Typed,
)
from rss_rl.api.terminal import shell
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from rss_rl.api.run import Run
    from rss_rl.training.run import RunEvent

_AFTERWARDS = 0.15
"""Of a limit of time, what scores, the linear classifier and the report take."""


def fit(
    data: Annotated[Rows, Typed(str), Parameter(name="FILE")],
    overrides: Overrides = (),
    *,
    text: NeededColumn,
    label: NeededColumn,
    keep: Annotated[float | None, Parameter(metavar="SHARE")] = None,
    config: Annotated[str | Path | None, Typed(str | None)] = None,
    pretrained: Annotated[str | None, Parameter(metavar="FOLDER_OR_HUB_NAME")] = None,
    phrases: bool = False,
    class_weight: Literal["balanced"] | None = None,
    time: Duration = None,
    seeds: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    out: Directory = None,
    overwrite: bool = False,
    callbacks: PythonOnly[Sequence[Callable[[RunEvent], None]]] = (),
    console: PythonOnly[Console | None] = None,
    **table: Unpack[TableOptions],
) -> Run:
    """Prepare a table and train on it: a classifier, and a policy that picks the words it reads.

    The configuration is `configs/own.yaml` (pairs: `own_pairs`, long texts: `own_long`), adapted to
    the number of rows, the labels and the length of the texts. Each choice is printed. The prepared
    data are put next to the run, in `NAME-data-KEY`, where KEY is a hash of rows and settings: the
    same table is prepared only once. After Ctrl-C or a crash the same command continues.

    Args:
        data: Training rows: .csv, .tsv, .jsonl or .parquet. In Python also other tables, see
            `rss_rl.prepare`.
        overrides: Settings that override those chosen from the data.
        text: Column of the text.
        label: Column with the label.
        keep: Share of the words to keep, `reward.target_share`. Default: 0.4, or 0.2 if texts have
            over 100 words on average.
        config: Train with this configuration, such as own_context, changed only by --keep and
            KEY=VALUE settings. Adapted to the data are own_phrases and own, own_pairs and own_long,
            one of which is the default.
        pretrained: A transformer to use. It is fine-tuned on all words, then on the kept ones, if
            there is a GPU or that takes no longer than --time (default: half an hour). Else it
            reads each word alone, which gives the word vectors, and each text once, as the policy's
            context.
        phrases: Of long texts, keep phrases like those that people mark (--config own_phrases).
            Default: single words, which predict a little better.
        class_weight: balanced: all classes count the same in training, however rare they are, and
            the best checkpoint is that of the best macro F1 on dev. Default: all rows count the
            same.
        seeds: Train so many runs that differ in the seed, and report mean and spread. Those after
            the first are in DIR-seed1, DIR-seed2, ...
        out: Directory of the run. Default: runs/NAME for NAME.csv.
        overwrite: Replace an existing run in the directory.
        callbacks: called with each event of the training, see `rss_rl.train`.
        console: for progress; default: standard output.
        table: how the table is read.

    Returns:
        The run, of several seeds the last; `paths` has all of them.

    Raises:
        RssError: any expected failure.

    Examples:
        `rss-rl fit reviews.csv --text review --label stars --keep 0.2`

        `rss-rl fit pairs.tsv --text a --text-b b --label score --task score --out runs/pairs`

        `rss-rl fit reviews.csv --text review --label stars --time 5m learner.policy.l2=1e-4`
    """
    from rss_rl.api.adapting import Wish, adapt, run_name
    from rss_rl.api.finetuning import compare
    from rss_rl.api.planning import is_of
    from rss_rl.api.terminal import SafeConsole, busy, say
    from rss_rl.api.train import train
    from rss_rl.config import load_config, settings
    from rss_rl.data.store import open_prepared
    from rss_rl.models.build import check_defaults
    from rss_rl.packaged import find_config
    from rss_rl.results.linear import add_linear
    from rss_rl.results.sentences import linear_warning, trojan_warning
    from rss_rl.results.trojan import add_trojan
    from rss_rl.runs.run_directory import CONFIG_FILE, REPORT_FILE
    from rss_rl.training.stopping import seconds

    check_defaults()
    # A wrong time is refused before the data are prepared.
    began = monotonic()
    end = None if time is None else began + seconds(time)
    if phrases and config is not None:
        raise ConfigError("--phrases and --config both name a configuration: give one of them")
    wish = Wish(keep, "own_phrases" if phrases else config, pretrained)
    wish.check()
    if class_weight is not None:
        overrides = [f"learner.class_weight={class_weight}", *settings(overrides)]
    shown = console or SafeConsole(highlight=False)
    path = Path(out) if out is not None else Path("runs") / run_name(data)
    paths = [path, *(path.with_name(f"{path.name}-seed{seed}") for seed in range(1, seeds))]
    begun = [] if overwrite else [own for own in paths if os.path.isfile(own / CONFIG_FILE)]
    if begun and all(os.path.isfile(own / REPORT_FILE) for own in paths):
        raise _taken(paths[0])
    left = None if end is None else end - monotonic()
    found = adapt(data, text, label, overrides, wish, table, path.parent, shown, left)
    if found.words is not None and not found.words.finished:
        say(shown, "The same command continues, too, and then trains on the kept words.")
        return found.words
    if end is not None and end <= monotonic():
        raise ConfigError(
            "preparing the data took all of the time; they are kept for the next call",
            where=f"time (--time) {time}",
            remedy="Repeat the command, or give it more time",
        )
    seed = load_config(find_config(found.config), found.settings).seed
    asked = [[*found.settings, f"seed={seed + number}"] for number in range(seeds)]
    for own, chosen in zip(paths, asked, strict=True):
        if own in begun and not is_of(own, found.config, chosen):
            raise _taken(own)
    for number, (own, chosen) in enumerate(zip(paths, asked, strict=True)):
        run = train(
            found.config,
            chosen,
            out=own,
            time=None if end is None else _training_time(end - monotonic(), seeds - number),
            resume=own in begun,
            overwrite=overwrite,
            callbacks=callbacks,
            console=shown,
        )
        run.paths = paths[: number + 1]
        if not run.finished:
            say(shown, "The same command continues, too, with all that is left.")
            return run
        if found.words is not None:
            compare(run, found.words)
        with busy(shown, "a linear classifier, and whether the kept words decide"):
            add_linear(run.path, open_prepared(run.config.data))
            add_trojan(run.path, "test", run.trust)
        report = run.report
        linear = linear_warning(report["splits"]["test"], "test")
        for warning in filter(None, (linear, trojan_warning(report["trojan"]["test"]))):
            say(shown, f"Warning: {warning}", "yellow")
    say(shown, f"All of it took {(monotonic() - began) / 60:.1f} minutes")
    return run


def _taken(path: Path) -> ConfigError:
    """That a directory has a run, which this call would not continue."""
    from rss_rl.runs.run_directory import REPORT_FILE

    finished = os.path.isfile(path / REPORT_FILE)
    words = ("report", path) if finished else ("train", "--resume", path)
    doing = f"{'See' if finished else 'Resume'} it ({shell('rss-rl', *words)})"
    return ConfigError(
        f"there is already a {'finished ' if finished else ''}run",
        where=str(path),
        remedy=f"{doing}, give another directory (--out), or overwrite=True (--overwrite)",
    )


def _training_time(left: float, runs: int) -> float:
    """Seconds for the training of one of the runs that share what is left."""
    return max(1.0, (1 - _AFTERWARDS) * left / runs)
