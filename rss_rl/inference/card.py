"""The model card of an export: description, usage, scores, training data, configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rss_rl.config import RunConfig, yaml_text
from rss_rl.data.manifest import Manifest
from rss_rl.results.output import markdown_table
from rss_rl.results.score_cells import mode_cells, modes_frame
from rss_rl.version import VERSION


def card(
    config: RunConfig,
    manifest: Manifest,
    run: str,
    step: int,
    report: Mapping[str, Any] | None,
) -> str:
    """The card as Markdown.

    Args:
        run: name of the run. step: of its checkpoint.
        report: contents of report.json; None if the run has not finished.
    """
    parts = [
        f"# {run}",
        _summary(config, manifest, step),
        "## Use",
        _usage(manifest),
        "## Scores",
        _scores(report, step),
        "## Data",
        "\n".join(_data(manifest)),
        "## Configuration",
        f"```yaml\n{yaml_text(config.model_dump(mode='json'))}```",
    ]
    return "\n\n".join(parts) + "\n"


def _summary(config: RunConfig, manifest: Manifest, step: int) -> str:
    policy = f"the policy `{config.policy.name}` selects words"
    how = policy if config.selects else "it reads every word"
    return (
        f"Predicts {manifest.labels.described}.\n"
        f"The encoder is `{config.model.encoder.name}`; {how}.\n"
        f"Update {step} of a run with seed {config.seed}, written by rss-rl {VERSION}."
    )


def _usage(manifest: Manifest) -> str:
    example = '["A text."]' if manifest.sentences == 1 else '[("A text.", "Another.")]'
    return (
        "```python\nimport rss_rl\n\n"
        'model = rss_rl.load("path/of/this/directory")\n'
        f"print(model.predict({example})[0].prediction)\n```"
    )


def _scores(report: Mapping[str, Any] | None, step: int) -> str:
    if report is None:
        return "The run had not finished when it was exported, so there is no report."
    table = "\n\n".join(
        markdown_table(*mode_cells(modes_frame(modes), split))
        for split, modes in report["splits"].items()
    )
    best = int(report["best_step"])
    if best != step:
        table += f"\n\nThese are the scores of update {best}, not of the exported one."
    return table


def _data(manifest: Manifest) -> Iterator[str]:
    rows = ", ".join(f"{info.rows:,} {split}" for split, info in manifest.splits.items())
    yield f"`{manifest.name}`: {rows}; {manifest.vocabulary.size:,} words."
    files = [*manifest.sources, *manifest.vectors.files]
    if files:
        yield ""
        yield markdown_table(["file", "SHA-256"], [[f"`{f.name}`", f"`{f.sha256}`"] for f in files])
