"""`rss-rl demo`: train on generated or real sentences, and summarise the result in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from rss_rl.api.options import Overrides, RunDirectory
from rss_rl.api.preparing import prepare
from rss_rl.api.terminal import busy, say
from rss_rl.api.training import train
from rss_rl.cli.show import Json, console, finished, write_page
from rss_rl.errors import CheckpointError

if TYPE_CHECKING:
    from rss_rl.api.run import Run


class _Demo(NamedTuple):
    """The data, configuration and wording of a demo.

    dim       width of the word vectors: that of the configuration's model
    settings  overrides of the configuration, which is also used without the demo
    marked    description of the marked words
    example   index of the test sentence that is shown
    """

    source: str
    config: str
    dim: int
    settings: tuple[str, ...]
    origin: str
    marked: str
    example: int


_MADE = _Demo(
    source="planted",
    config="demo",
    dim=64,
    settings=("sampler.backend=ray",),
    origin="made with seed {seed}",
    marked="words that decide the label",
    example=0,
)
_REAL = _Demo(
    source="product-reviews",
    config="demo_real",
    dim=50,
    settings=(),
    origin="of product reviews, rated by people",
    marked="words that people rated positive or negative on their own",
    example=3,
)


def demo(
    overrides: Overrides = (),
    *,
    real: bool = False,
    run_dir: RunDirectory = None,
    seed: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    json_: Json = False,
) -> None:
    """Train on generated sentences whose deciding words are known, or on real ones.

    The demo prepares the sentences, trains (with Ray samplers on generated ones), and compares the
    kept words with the words that decide the label. On real sentences it keeps 15% of the words,
    and compares them with words that people rated positive or negative. At the end it prints the
    path of a report to open. An earlier demo in the same directory is replaced.

    Args:
        overrides: Settings that differ from `configs/demo.yaml`, or `configs/demo_real.yaml`.
        real: Train on real text: sentences from product reviews, which are included in the package.
        run_dir: Directory of the run. Default: runs/demo, or runs/demo-real.
        seed: Seed of the generated sentences and of the training.

    Examples:
        `rss-rl demo`

        `rss-rl demo --seed 1 --run-dir runs/demo-1`

        `rss-rl demo --real`

        `rss-rl demo --real reward.target_share=0.3`
    """
    shown = _REAL if real else _MADE
    out = console(stderr=json_)
    run_dir = Path(run_dir or ("runs/demo-real" if real else "runs/demo"))
    data = run_dir.with_name(f"{run_dir.name}-data").resolve()
    _check_replaceable(run_dir, data)
    with busy(out, "preparing sentences"):
        manifest = prepare(shown.source, out=data, dim=shown.dim, seed=seed, force=True).manifest
    rows = ", ".join(f"{info.rows:,} {name}" for name, info in manifest.splits.items())
    say(out, f"Sentences: {rows}, {shown.origin.format(seed=seed)}, in {data}")
    from rss_rl.config import setting, settings

    chosen = [setting("data", str(data)), f"seed={seed}", *shown.settings, *settings(overrides)]
    run = train(shown.config, chosen, out=run_dir, overwrite=True, console=out)
    finished(run, out, json_)
    if not json_:
        _print_summary(out, run, shown)
        _print_example(out, run, data, shown)
        write_page(run, out)


def _check_replaceable(run_dir: Path, data: Path) -> None:
    """Check that only a demo would be replaced.

    Raises:
        CheckpointError: the directory holds another run.
    """
    from rss_rl.runs.run_directory import RunDirectory

    if (run_dir / "config.json").is_file() and RunDirectory.open(run_dir).config.get("data") != str(
        data
    ):
        raise CheckpointError(
            "holds a run that is not a demo",
            where=str(run_dir),
            remedy="Choose another --run-dir",
        )


def _print_summary(out: Console, run: Run, shown: _Demo) -> None:
    """Summarise the scores in sentences."""
    from rss_rl.results.sentences import score_sentences

    test = run.report["splits"]["test"]
    chosen, lines = test["thresholded"], score_sentences(test, "accuracy", "test")
    if (share := run.config.reward.target_share) is not None:
        lines.insert(0, f"The policy was asked to keep {100 * share:.3g}% of the words.")
    if "rationale_f1" in chosen:
        lines.append(
            f"The policy was not given the {shown.marked}. Of the words it keeps, "
            f"{chosen['rationale_precision']:.0%} are such words, and it keeps "
            f"{chosen['rationale_recall']:.0%} of all such words (F1 {chosen['rationale_f1']:.2f}; "
            f"random words: {chosen['rationale_f1_random']:.2f})."
        )
    out.print()
    for line in lines:
        say(out, line)


def _print_example(out: Console, run: Run, data: Path, shown: _Demo) -> None:
    from rss_rl.cli.select import print_explanation
    from rss_rl.data.store import open_prepared

    test = open_prepared(data).split("test")
    batch = test.batch([shown.example])
    words = test.words(shown.example)
    out.print("\nA test sentence, with the kept words in brackets:\n")
    print_explanation(out, run.model.explain(words[0]), details=False)
    say(out, f"label: {test.labels.names[int(batch.labels[0])]}")
    for sentence, bits in zip(words, batch.rationale or (), strict=False):
        marked = [word for word, bit in zip(sentence, bits[0], strict=False) if bit]
        say(out, f"{shown.marked}: {' '.join(marked)}")
