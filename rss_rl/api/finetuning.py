"""A transformer as the classifier of `fit`: how long it takes, and its fine-tuning on all words.

It first learns from all words of the data, once for each table and seed. The policy then reads each
word's state in this transformer; the classifier begins with it, and reads the kept words.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console

from rss_rl.api.export import export
from rss_rl.api.run import Run
from rss_rl.api.terminal import say
from rss_rl.api.train import train
from rss_rl.config import RunConfig
from rss_rl.data.store import open_prepared
from rss_rl.pretrained.folder import open_pretrained
from rss_rl.pretrained.reader import WordReader
from rss_rl.reading.device import fixed_threads
from rss_rl.runs.run_directory import ALL_TOKENS, CONFIG_FILE, REPORT_FILE, RunDirectory

CLASSIFIER = "transformer/sentences_in_context"
"""The configuration whose classifier is the transformer."""
UPDATES = 200, 600
"""Fewest and most updates on kept words."""
_EPOCHS = 2.0
_FEWEST, _MOST = 60, 600
"""Bounds of the updates that fine-tune on all words."""
_BATCH = 32
_MEASURED = 2048
"""Words of the batch that is measured, where that is at least two texts: 32 films took 14 GB."""
_SELECTIONS = 4
_FORWARD = 1 / 3
"""Time of reading texts, as a part of that of learning from them."""
_PART = 0.4
"""Of a limit of time: that of the fine-tuning on all words."""


class Expected(NamedTuple):
    """What a transformer takes on this machine as classifier: seconds, with so many threads."""

    seconds: float
    threads: int


def expect(data: Path, pretrained: str, share: float) -> Expected:
    """Measure on a batch of the data how long a transformer needs, alone and on all cores.

    On a busy machine a thread is faster than several, which wait for each other.

    Args:
        data: prepared. share: of the words that are kept.

    Raises:
        RssError: the transformer or the data cannot be used.
    """
    prepared, folder = open_prepared(data), open_pretrained(pretrained)
    train = prepared.split("train")
    reader = WordReader(folder, folder.encoder(), prepared.vocabulary.words)
    fitting = int(_MEASURED / max(1.0, train.lengths().sum(1).mean()))
    count = min(len(train), _BATCH, max(2, fitting))
    rows = np.linspace(0, len(train) - 1, count, dtype=np.int64)
    batch = train.batch(rows)

    def learn() -> float:
        began = time.monotonic()
        for tokens, valid in zip(batch.tokens, batch.valid, strict=True):
            kept = torch.from_numpy(valid)
            text = kept.nonzero(as_tuple=True)[0]
            vectors = reader.pooled(torch.from_numpy(tokens)[kept], text, len(rows))
            vectors.sum().backward()  # type: ignore[no-untyped-call]
        return time.monotonic() - began

    def fastest(threads: int) -> float:
        with fixed_threads(threads):
            learn()  # warms up
            return min(learn(), learn())

    seconds, threads = min((fastest(count), count) for count in {1, len(os.sched_getaffinity(0))})
    each = seconds / len(rows)
    all_words = _all_words(len(train)) * _BATCH + len(train) * _FORWARD
    kept = UPDATES[1] * _BATCH * share * (1 + _SELECTIONS * _FORWARD)
    return Expected(each * (all_words + kept), threads)


def _all_words(rows: int) -> int:
    """Updates that fine-tune on all words of so many rows."""
    return int(np.clip(round(_EPOCHS * rows / _BATCH), _FEWEST, _MOST))


def fine_tune(data: Path, pretrained: str, config: RunConfig, end: float, console: Console) -> Run:
    """Fine-tune a transformer on all words of prepared data, or continue to, or find it done.

    One that a limit of time cut short is fine-tuned anew as soon as there is time for all of it.

    Args:
        config: of the run that uses it; gives the seed, the device and the threads.
        end: of the time for everything, by `time.monotonic`; this takes a part of what is left.

    Returns:
        The run, next to the data; not finished if it was stopped.

    Raises:
        RssError: any expected failure.
    """
    digest = open_pretrained(pretrained).digest
    path = data.with_name(f"{data.name}-encoder-{digest[:8]}-seed{config.seed}")
    seconds = None if end == math.inf else max(1.0, _PART * (end - time.monotonic()))
    if (path / REPORT_FILE).is_file():
        done = Run(path)
        part = max(1, done.report["steps"]) / (done.config.updates or 1)
        needed = done.report["wall_seconds"] / part
        if part >= 1 or (seconds is not None and seconds < needed):
            short = "" if part >= 1 else f", in the {part:.0%} of its updates that --time left it"
            say(
                console,
                f"Fine-tuned on all words already{short} (delete it to do so again): {path}",
            )
            return done
        say(
            console,
            f"--time left the fine-tuning {part:.0%} of its updates: once more, all of them",
        )
        shutil.rmtree(path)
        shutil.rmtree(_exported(path), ignore_errors=True)
    say(console, "First: the transformer learns from all words of these data")
    if (path / CONFIG_FILE).is_file():
        return train(path, resume=True, time=seconds, console=console)
    steps = _all_words(len(open_prepared(data).split("train")))
    chosen = {
        "data": str(data),
        "seed": config.seed,
        "model.encoder.options.pretrained": pretrained,
        "learner.device": config.learner.device,
        "learner.threads": config.learner.threads,
        "learner.supervised.decay_updates": steps,
        "phases.0.steps": steps,
        "evaluation.every": max(1, steps // 2),
    }
    return train("transformer/all_words", chosen, out=path, time=seconds, console=console)


def tuned_encoder(run: Run) -> str:
    """The folder of the transformer that `fine_tune` trained."""
    out = _exported(run.path)
    folder = out / "encoder"
    if not folder.is_dir():
        export(run.path, out=out, encoder=True, overwrite=True)
    return str(folder)


def _exported(run: Path) -> Path:
    return run.with_name(f"{run.name}-export")


def compare(run: Run, words: Run) -> None:
    """Make the transformer that reads all words the comparison of a run that reads kept ones."""
    report = run.report
    for split, modes in report["splits"].items():
        report["splits"][split] = {**words.report["splits"][split], **modes}
    left_out = shutil.ignore_patterns("tensorboard", "*.lock")
    shutil.copytree(words.path, run.path / ALL_TOKENS, ignore=left_out, dirs_exist_ok=True)
    RunDirectory.open(run.path).write_report(report)
