"""A demo: data that need no download, prepared and trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rss_rl.api.options import Overrides, PythonOnly, RunDirectory
from rss_rl.api.preparing import prepare
from rss_rl.api.terminal import SafeConsole, busy, say
from rss_rl.api.training import train
from rss_rl.errors import CheckpointError

if TYPE_CHECKING:
    from rich.console import Console

    from rss_rl.api.run import Run


def demo(
    overrides: Overrides = (),
    *,
    real: bool = False,
    run_dir: RunDirectory = None,
    seed: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    console: PythonOnly[Console | None] = None,
) -> Run:
    """Train on generated sentences whose deciding words are known, or on real ones.

    The demo prepares the sentences, trains (with Ray samplers on generated ones), and compares the
    kept words with the words that decide the label. On real sentences it keeps 15% of the words,
    and compares them with words that people rated positive or negative on their own. At the end it
    prints the path of a report to open. An earlier demo in the same directory is replaced.

    Args:
        overrides: Settings that differ from `configs/demo.yaml`, or `configs/demo_real.yaml`.
        real: Train on real text: sentences from product reviews, which are included in the package.
        run_dir: Directory of the run. Default: runs/demo, or runs/demo-real.
        seed: Seed of the generated sentences and of the training.
        console: for progress; default: standard output.

    Raises:
        RssError: the directory holds another run, or any failure of the training.

    Examples:
        `rss-rl demo`

        `rss-rl demo --seed 1 --run-dir runs/demo-1`

        `rss-rl demo --real`

        `rss-rl demo --real reward.target_share=0.3`
    """
    from rss_rl.config import settings
    from rss_rl.runs.run_directory import CONFIG_FILE, RunDirectory

    source, config, dim = ("planted", "demo", 64)
    own = ["sampler.backend=ray"]
    if real:
        source, config, dim = ("product-reviews", "demo_real", 50)
        own = []
    run_dir = Path(run_dir or Path("runs") / config.replace("_", "-"))
    data = run_dir.with_name(f"{run_dir.name}-data").resolve()
    if (run_dir / CONFIG_FILE).is_file() and (
        RunDirectory.open(run_dir).config.get("data") != str(data)
    ):
        raise CheckpointError(
            "holds a run that is not a demo", where=str(run_dir), remedy="Give another --run-dir"
        )
    shown = console or SafeConsole(highlight=False)
    with busy(shown, "preparing sentences"):
        splits = prepare(
            source, out=data, dim=dim, label_weights=real, seed=seed, force=True
        ).manifest.splits
    rows = ", ".join(f"{info.rows:,} {name}" for name, info in splits.items())
    say(shown, f"Sentences: {rows}, in {data}")
    chosen = [*settings({"data": str(data), "seed": seed}), *own, *settings(overrides)]
    return train(config, chosen, out=run_dir, overwrite=True, console=shown)
