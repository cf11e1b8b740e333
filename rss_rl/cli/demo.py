"""`rss-rl demo`: train on made sentences, and say in words how well it went."""

from __future__ import annotations

__all__ = ["EPILOG", "demo"]

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.options import console, end_run, write_page
from rss_rl.errors import CheckpointError

EPILOG = """
Examples:

`rss-rl demo`

`rss-rl demo --seed 1 --run-dir runs/demo-1`
"""
_SOURCE, _CONFIG = "planted", "demo"
_DIM = 64
"""Numbers of a word vector: as many as the model of configs/demo.yaml has hidden features."""


def demo(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Settings that differ from `configs/demo.yaml`."
        ),
    ] = None,
    run_dir: Annotated[
        Path, typer.Option("--run-dir", metavar="DIR", help="Directory of the run.")
    ] = Path("runs/demo"),
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Of the sentences and of the training.")
    ] = 0,
    json_: options.Json = False,
) -> None:
    """Train on made sentences of which it is known which words decide the label.

    Prepares the sentences, trains with Ray samplers, and compares the words that the policy keeps
    with those that decide. A demo that is there already is replaced.
    """
    out = console(stderr=json_)
    data = run_dir.with_name(f"{run_dir.name}-data").resolve()
    _check_replaceable(run_dir, data)
    _prepare(data, seed, out)
    from rss_rl.api.training import train

    fixed = [f"data={json.dumps(str(data))}", f"seed={seed}", "sampler.backend=ray"]
    settings = [*fixed, *(overrides or [])]
    run = train(_CONFIG, settings, out=run_dir, overwrite=True, console=out)
    end_run(run, out, as_json=json_)
    if not json_:
        _read_out(out, run.report)
        _print_example(out, run_dir, data)
        write_page(run, out)


def _check_replaceable(run_dir: Path, data: Path) -> None:
    """Only a demo may be replaced by a demo.

    Raises:
        CheckpointError: another run is there.
    """
    from rss_rl.runs.run_directory import RunDirectory

    if (run_dir / "config.json").is_file() and RunDirectory.open(run_dir).config.get("data") != str(
        data
    ):
        raise CheckpointError(
            "a run that is no demo is there",
            where=str(run_dir),
            remedy="Choose another --run-dir",
        )


def _prepare(data: Path, seed: int, out: Console) -> None:
    from rss_rl.data.prepare import prepare
    from rss_rl.data.sources import SourceRequest, named_source

    with out.status("making sentences"):
        source = named_source(_SOURCE, SourceRequest(seed=seed))
        manifest = prepare(source, data, dim=_DIM, seed=seed, force=True)
    rows = ", ".join(f"{info.rows:,} {name}" for name, info in manifest.splits.items())
    say(out, f"Sentences: {rows}, made with seed {seed}, in {data}")


def _read_out(out: Console, report: Mapping[str, Any]) -> None:
    """What the table says, in words."""
    from rss_rl.results.in_words import in_words

    test = report["splits"]["test"]
    chosen, lines = test["thresholded"], in_words(test, "accuracy", "test")
    if "rationale_f1" in chosen:
        lines.append(
            f"Nobody told it which words decide. Of the words it keeps, "
            f"{chosen['rationale_precision']:.0%} do, and it keeps "
            f"{chosen['rationale_recall']:.0%} of those that do (F1 {chosen['rationale_f1']:.2f}; "
            f"random words: {chosen['rationale_f1_random']:.2f})."
        )
    out.print()
    for line in lines:
        say(out, line)


def _print_example(out: Console, run_dir: Path, data: Path) -> None:
    from rss_rl.cli.select import print_explanation
    from rss_rl.data.store import open_prepared
    from rss_rl.inference.model import load_model

    test = open_prepared(data).split("test")
    batch = test.batch([0])
    words = test.words(0)
    out.print("\nA test sentence, with what was kept in brackets:\n")
    print_explanation(out, load_model(run_dir).explain(words[0]), details=False)
    out.print(f"label: {test.labels.names[int(batch.labels[0])]}")
    for sentence, bits in zip(words, batch.rationale or (), strict=False):
        planted = [word for word, bit in zip(sentence, bits[0], strict=False) if bit]
        say(out, f"words that decide it: {' '.join(planted)}")
