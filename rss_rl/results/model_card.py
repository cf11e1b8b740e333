"""The README.md of an exported model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rss_rl.config import RunConfig, yaml_text
from rss_rl.data.manifest import Manifest
from rss_rl.inference.artifact import Scores, about_model
from rss_rl.results.tables import markdown_table, markdown_text, mode_cells, modes_frame
from rss_rl.version import VERSION


def model_card(config: RunConfig, manifest: Manifest, run: str, step: int, scores: Scores) -> str:
    """What the model is, how to use it, its scores, data and configuration, in Markdown.

    Args:
        run: name of the run. step: of its checkpoint, with these scores.
    """
    return "\n\n".join(_paragraphs(config, manifest, run, step, scores)) + "\n"


def _paragraphs(
    config: RunConfig, manifest: Manifest, run: str, step: int, scores: Scores
) -> Iterator[str]:
    example = '["A text."]' if manifest.sentences == 1 else '[("A text.", "Another.")]'
    yield f"# {markdown_text(run)}"
    yield markdown_text(" ".join(about_model(config, manifest, scores)))
    yield f"Update {step} of a run with seed {config.seed}, written by rss-rl {VERSION}."
    yield "## Use"
    yield (
        "```python\nimport rss_rl\n\n"
        'model = rss_rl.load("path/of/this/directory")\n'
        f"print(model.predict({example})[0].prediction)\n```"
    )
    yield "## Scores"
    if not scores:
        yield "The run has no report of this checkpoint."
    for split, modes in scores.items():
        yield markdown_table(*mode_cells(modes_frame(modes), markdown_text(split)))
    if files := [*manifest.sources, *manifest.vectors.files]:
        yield "## Data"
        yield markdown_table(["file", "SHA-256"], [[file.name, file.sha256] for file in files])
    yield "## Configuration"
    settings = yaml_text(config.model_dump(mode="json"))
    fence = max(["``", *re.findall("`+", settings)], key=len) + "`"
    yield f"{fence}yaml\n{settings}{fence}"
