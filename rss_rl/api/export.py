"""Write a run as a self-contained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rss_rl.api.options import (
    Directory,
    TrustPlugins,
    Typed,
    Which,
)


def export(
    run: Annotated[str | Path, Typed(Path)],
    *,
    out: Directory = None,
    which: Which = "best",
    encoder: bool = False,
    overwrite: bool = False,
    trust_plugins: TrustPlugins = False,
) -> Path:
    """Write weights, vocabulary, configuration and a model card into a self-contained directory.

    Args:
        run: Directory of a run.
        out: Directory to write. Default: RUN-export.
        encoder: Also write the trained transformer, its adapters merged, as encoder/: a folder for
            policy.pretrained, `rss-rl data encode` or the transformers library.
        overwrite: Replace an existing export.

    Examples:
        `rss-rl export runs/reviews` writes `runs/reviews-export`.

        `rss-rl export runs/reviews --out models/reviews`

        In Python, without Ray: `rss_rl.load("models/reviews").predict(["A dull film."])`
    """
    from rss_rl.components import EVERYTHING, NOTHING
    from rss_rl.inference.artifact import export_run
    from rss_rl.results.model_card import model_card

    run = Path(run).resolve()
    return export_run(
        run,
        Path(out or run.with_name(f"{run.name}-export")),
        which=which,
        overwrite=overwrite,
        encoder=encoder,
        card=model_card,
        trust=EVERYTHING if trust_plugins else NOTHING,
    )
