"""`rss-rl export`: write a trained model as a self-contained directory."""

from __future__ import annotations

from pathlib import Path

from rss_rl.api.options import Directory, TrustPlugins, Which
from rss_rl.api.terminal import say
from rss_rl.cli.show import Json, console, echo_json


def export(
    run: Path,
    *,
    out: Directory = None,
    which: Which = "best",
    encoder: bool = False,
    overwrite: bool = False,
    trust_plugins: TrustPlugins = False,
    json_: Json = False,
) -> None:
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

    folder = export_run(
        run,
        Path(out or run.resolve().with_name(f"{run.resolve().name}-export")),
        which=which,
        overwrite=overwrite,
        encoder=encoder,
        trust=EVERYTHING if trust_plugins else NOTHING,
    )
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in files}
    if json_:
        echo_json({"path": str(folder), "bytes": sizes})
        return
    say(console(), f"Exported to {folder}")
    for name, size in sizes.items():
        say(console(), f"  {name:{max(map(len, sizes))}} {size / 1e6:9.3f} MB")
