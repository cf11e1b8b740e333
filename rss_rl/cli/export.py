"""`rss-rl export`: write a trained model as a self-contained directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.options import checkpoint, console, option, trust

EPILOG = """
Examples:

`rss-rl export runs/reviews` writes `runs/reviews-export`.

`rss-rl export runs/reviews --out models/reviews`

In Python, without Ray: `rss_rl.load("models/reviews").predict(["A dull film."])`
"""


def export(
    run: options.RunPath,
    out: Annotated[
        Path | None, option("--out DIR", "Directory to write. Default: RUN-export.")
    ] = None,
    which: options.Which = "best",
    encoder: Annotated[
        bool,
        option(
            "--encoder",
            "Also write the trained transformer, its adapters merged, as encoder/: a folder for"
            " policy.pretrained, `rss-rl data encode` or the transformers library.",
        ),
    ] = False,
    overwrite: Annotated[bool, option("--overwrite", "Replace an existing export.")] = False,
    trust_plugins: options.TrustPlugins = False,
    json_: options.Json = False,
) -> None:
    """Write weights, vocabulary, configuration and a model card into a self-contained directory."""
    from rss_rl.inference.artifact import export_run

    folder = export_run(
        run,
        out or run.resolve().with_name(f"{run.resolve().name}-export"),
        which=checkpoint(which),
        overwrite=overwrite,
        encoder=encoder,
        trust=trust(trust_plugins),
    )
    sizes = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    if json_:
        typer.echo(json.dumps({"path": str(folder), "bytes": sizes}, indent=2))
        return
    printed = console()
    say(printed, f"Exported to {folder}")
    width = max(map(len, sizes))
    for name, size in sizes.items():
        say(printed, f"  {name:{width}} {size / 1e6:9.3f} MB")
