"""`rss-rl export`: write a trained model as a self-contained directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.options import checkpoint, console, option, trust
from rss_rl.errors import ConfigError

EPILOG = """
Examples:

`rss-rl export runs/reviews` writes `runs/reviews-export`.

`rss-rl export runs/reviews --out models/reviews --onnx`

In Python, without Ray: `rss_rl.load("models/reviews").predict(["A dull film."])`
"""


def export(
    run: options.RunPath,
    out: Annotated[
        Path | None, option("--out DIR", "Directory to write. Default: RUN-export.")
    ] = None,
    which: options.Which = "best",
    onnx: Annotated[
        bool, option("--onnx", "Also write model.onnx, and check it; needs rss-rl[onnx].")
    ] = False,
    int8: Annotated[
        bool,
        option(
            "--int8",
            "With --onnx: also write model-int8.onnx, whose transformer computes in 8-bit"
            " integers. It is smaller and faster, and not as exact.",
        ),
    ] = False,
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
    from rss_rl.inference.onnx_graph import write_onnx
    from rss_rl.inference.onnx_int8 import write_with_int8

    if int8 and not onnx:
        raise ConfigError("--int8 needs --onnx", remedy="Give --onnx --int8")
    folder = export_run(
        run,
        out or run.resolve().with_name(f"{run.resolve().name}-export"),
        which=checkpoint(which),
        overwrite=overwrite,
        onnx=write_with_int8 if int8 else write_onnx if onnx else None,
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
