"""A demo: data that need no download, prepared and trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rss_rl.api.options import Directory, Overrides, PythonOnly
from rss_rl.api.prepare import prepare
from rss_rl.api.terminal import SafeConsole, busy, say
from rss_rl.api.train import train
from rss_rl.errors import CheckpointError

if TYPE_CHECKING:
    from rich.console import Console

    from rss_rl.api.run import Run


def demo(
    overrides: Overrides = (),
    *,
    real: bool = False,
    out: Directory = None,
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
        out: Directory of the run. Default: runs/demo, or runs/demo-real.
        seed: Seed of the generated sentences and of the training.
        console: for progress; default: standard output.

    Raises:
        RssError: the directory holds another run, or any failure of the training.

    Examples:
        `rss-rl demo`

        `rss-rl demo --seed 1 --out runs/demo-1`

        `rss-rl demo --real`

        `rss-rl demo --real reward.target_share=0.3`
    """
    from rss_rl.config import settings
    from rss_rl.runs.run_directory import CONFIG_FILE, RunDirectory

    source, config, dim = ("planted", "demo", 64)
    backend = ["sampler.backend=ray"]
    if real:
        source, config, dim = ("product-reviews", "demo_real", 50)
        backend = []
    path = Path(out or Path("runs") / config.replace("_", "-"))
    data = path.with_name(f"{path.name}-data").resolve()
    if (path / CONFIG_FILE).is_file() and (RunDirectory.open(path).config.get("data") != str(data)):
        raise CheckpointError(
            "holds a run that is not a demo", where=str(path), remedy="Give another --out"
        )
    shown = console or SafeConsole(highlight=False)
    with busy(shown, "preparing sentences"):
        splits = prepare(
            source, out=data, dim=dim, label_weights=real, seed=seed, force=True
        ).manifest.splits
    rows = ", ".join(f"{info.rows:,} {name}" for name, info in splits.items())
    say(shown, f"Sentences: {rows}, in {data}")
    chosen = [*settings({"data": str(data), "seed": seed}), *backend, *settings(overrides)]
    return train(config, chosen, out=path, overwrite=True, console=shown)
