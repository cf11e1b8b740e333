"""From a table to a trained model in one call."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

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


_LINEAR = 0.6
"""Of what a limit of time leaves for the time after a training: that of the linear classifier."""


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
    folds: Annotated[int | None, Parameter(validator=Number(gte=2))] = None,
    learning_curve: bool = False,
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
        folds: Train so many runs, each of which is tested on another part of the table, and report
            mean and spread: for a few hundred rows. Those after the first are in DIR-fold2, ...
        learning_curve: Train on a quarter and on half of the rows first, in DIR-quarter and
            DIR-half, and show whether more rows would help.
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
    from rss_rl.api.adapting import TRAINING, adapt, run_name
    from rss_rl.api.finetuning import compare
    from rss_rl.api.planning import Plan, check_lasting
    from rss_rl.api.resampling import deal_rows, fit_folds, fit_parts
    from rss_rl.api.terminal import SafeConsole, say
    from rss_rl.api.train import carry_out
    from rss_rl.config import absolute_paths, settings
    from rss_rl.models.build import check_defaults
    from rss_rl.runs.run_directory import CONFIG_FILE, REPORT_FILE, RunDirectory
    from rss_rl.training.stopping import TimeBudget, seconds

    check_defaults()
    # A wrong time is refused before the data are prepared.
    began = monotonic()
    end = math.inf if time is None else began + seconds(time)
    if phrases and config is not None:
        raise ConfigError("--phrases and --config both name a configuration: give one of them")
    if class_weight is not None:
        overrides = [f"learner.class_weight={class_weight}", *settings(overrides)]
    shown = console or SafeConsole(highlight=False)
    path = Path(out) if out is not None else Path("runs") / run_name(data)
    if folds is not None or learning_curve:
        if seeds > 1 or (folds is not None and learning_curve):
            raise ConfigError("--seeds, --folds and --learning-curve: give one of them")
        if folds is not None and table.get("test") is not None:
            raise ConfigError("--folds tests on the table itself: leave --test out")

        def again(rows: Rows, chosen: list[str], *, part: float, out: Path, **splits: Any) -> Run:
            return fit(
                rows, chosen, text=text, label=label, keep=keep, config=config,
                pretrained=pretrained, phrases=phrases,
                time=None if time is None else max(1.0, part * (end - monotonic())), out=out,
                overwrite=overwrite, callbacks=callbacks, console=shown, **{**table, **splits},
            )  # fmt: skip

        deal = partial(deal_rows, data, str(text), str(label), table)
        if folds is None:
            return fit_parts(again, deal, settings(overrides), table, path)
        return fit_folds(again, deal, settings(overrides), folds, path)
    paths = [path, *(path.with_name(f"{path.name}-seed{seed}") for seed in range(1, seeds))]
    begun = [] if overwrite else [each for each in paths if os.path.isfile(each / CONFIG_FILE)]
    if begun and all(os.path.isfile(each / REPORT_FILE) for each in paths):
        raise _taken(path)
    adapted = adapt(
        data, text, label, overrides, table, path.parent, shown,
        keep=keep, config="own_phrases" if phrases else config, pretrained=pretrained, end=end,
        runs=seeds, begun=RunDirectory.open(begun[0]).config if begun else None,
    )  # fmt: skip
    if adapted.all_words is not None and not adapted.all_words.finished:
        say(shown, "The same command continues, too, and then trains on the kept words.")
        return adapted.all_words
    if end <= monotonic():
        raise ConfigError(
            "preparing the data took all of the time; they are kept for the next call",
            where=f"time (--time) {time}",
            remedy="Repeat the command, or give it more time",
        )
    resolved = absolute_paths(adapted.config)
    configs = [resolved.model_copy(update={"seed": resolved.seed + n}) for n in range(seeds)]
    for each, run_config in zip(paths, configs, strict=True):
        if each in begun and RunDirectory.open(each).config != run_config.model_dump(mode="json"):
            raise _taken(each)
    for number, (each, run_config) in enumerate(zip(paths, configs, strict=True)):
        plan = Plan(run_config, each)
        check_lasting(each, None)
        seconds_left = (end - monotonic()) / (seeds - number)
        run = carry_out(
            plan,
            TimeBudget(run_config, max(1.0, TRAINING * seconds_left), adapted.costs),
            resume=each in begun,
            overwrite=overwrite,
            callbacks=callbacks,
            console=shown,
        )
        run.paths = paths[: number + 1]
        if not run.finished:
            say(shown, "The same command continues, too, with all that is left.")
            return run
        if adapted.all_words is not None:
            compare(run, adapted.all_words)
        _judge(run, monotonic() + _LINEAR * (1 - TRAINING) * seconds_left, shown)
    say(shown, f"All of it took {(monotonic() - began) / 60:.1f} minutes")
    return run


def _judge(run: Run, end: float, console: Console) -> None:
    """Add to a run's report what a linear classifier reaches and whether the kept words decide.

    Args:
        end: of the time for the linear classifier, by `time.monotonic`.
    """
    from rss_rl.api.terminal import busy, counted, say
    from rss_rl.data.store import open_prepared
    from rss_rl.results.linear import add_linear
    from rss_rl.results.sentences import linear_warning, trojan_warning
    from rss_rl.results.trojan import add_trojan

    with counted(console, "a linear classifier") as progress:
        add_linear(run.path, open_prepared(run.config.data), progress, end)
    with busy(console, "whether the kept words decide"):
        add_trojan(run.path, "test", run.trust)
    report = run.report
    linear = linear_warning(report["splits"]["test"], "test")
    for warning in filter(None, (linear, trojan_warning(report["trojan"]["test"]))):
        say(console, f"Warning: {warning}", "yellow")


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
