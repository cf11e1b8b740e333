"""`rss-rl evaluate`: scores of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from rss_rl.api.options import TrustPlugins, Which
from rss_rl.api.terminal import busy, plain_table
from rss_rl.cli.show import Json, Markdown, console, echo, echo_json
from rss_rl.errors import ConfigError


def evaluate(
    runs: Annotated[list[Path], Parameter(name="RUN")],
    *,
    split: str = "test",
    mode: list[Literal["all", "thresholded", "sampled", "random"]] | None = None,
    marks: bool = False,
    scores: Annotated[list[Path] | None, Parameter(metavar="FILE")] = None,
    share: Annotated[float | None, Parameter(validator=Number(gte=0, lte=1))] = None,
    which: Which = "best",
    device: str | None = None,
    trust_plugins: TrustPlugins = False,
    markdown: Markdown = False,
    json_: Json = False,
) -> None:
    """Score a split with a checkpoint of a run, or of several.

    With --marks the data must say which words people marked, as eraser-movies and yelp-hat do;
    `rss-rl data list` lists more. In a pair, a text without any mark does not count. The run must
    be of the faithful form. `top-k`, `random` and scores from files keep the policy's mean share of
    words, or that of --share.

    A line of a scores file is `{"id": "a review", "scores": [0.1, 0.7, 0.2]}`: the example's id, as
    `rss-rl data show` prints it, and a number for each word. For a pair of texts, give two lists.

    Comprehensiveness and sufficiency are defined as in ERASER. They use the classifier that reads
    all words, and say how much the probability of its class falls without the selected words, and
    with only the selected words. Similarity is the area under the ROC curve against single
    annotators; 0.5 is chance.

    AUPRC and the rows `at budgets` and `at people's count` are defined as in Brinner and Zarriess
    (EMNLP 2024). `at budgets` is the mean over the best 5, 10, ..., 95% of a text's words. `at
    people's count` takes as many of the best words as people marked. IOU F1 at budgets uses the
    best overlaps, without a threshold; compr. and suff. at budgets are for the right class.

    Args:
        runs: Directory of a run, or several.
        split: Split to score: dev, test, train.
        mode: How tokens are selected; repeatable. `all` is the comparison trained on all tokens.
            Default: all modes of the run.
        marks: Compare the selections with the words that people marked.
        scores: With --marks: another method's scores of the words; repeatable.
        share: With --marks: share of the words for all selections but the policy's. Default: the
            policy's mean share.
        device: cpu, cuda, ... Default: the device that the run trained on.

    Examples:
        `rss-rl evaluate runs/demo` scores the test split as the final report does.

        `rss-rl evaluate runs/demo --split dev --mode thresholded --which latest --json`

        `rss-rl evaluate runs/movies-* --marks` compares the selections with people's.

        `rss-rl evaluate runs/movies --scores other.jsonl --share 0.2` adds another method's scores.
    """
    marks = marks or bool(scores)
    for wrong, what, remedy in (
        (markdown and json_, "several output formats are given", "Give one of them"),
        (marks and mode, "--mode is not for --marks", "Leave out one of them"),
        (share is not None and not marks, "--share is for --marks", "Give --marks, too"),
    ):
        if wrong:
            raise ConfigError(what, remedy=remedy)
    from rss_rl.api.run import Run

    found: dict[str, Any] = {}
    files = _file_names(scores or [])
    for path in runs:
        run = Run(path, trust_plugins=trust_plugins)
        if marks:
            from rss_rl.results.agreement import score_run_agreement

            with busy(console(stderr=True), f"scoring {path}") as tell:
                found[str(path)] = score_run_agreement(
                    path,
                    split,
                    which=which,
                    share=share,
                    files=files,
                    device=device,
                    progress=lambda done, end: tell(f"scoring: {done:,} of {end:,}"),
                    trust=run.trust,
                )
        else:
            found[str(path)] = run.evaluate(split, mode, which=which, device=device)
    if json_:
        echo_json({"split": split, "which": which, "runs": found})
        return
    from rss_rl.results.output import markdown_table
    from rss_rl.results.score_cells import mode_cells, modes_frame

    for name, own in found.items():
        header, body = mode_cells(modes_frame(own), name)
        if markdown:
            echo(f"{markdown_table(header, body)}\n")
        else:
            console().print(plain_table(header, body, left=1), "")


def _file_names(files: Sequence[Path]) -> dict[str, Path]:
    """Column name of each file: its name, or its path if two files have the same name."""
    names = [file.name for file in files]
    named = {file.name if names.count(file.name) == 1 else str(file): file for file in files}
    if len(named) < len(files):
        raise ConfigError("a file of scores is given twice", where="--scores", remedy="Drop one")
    return named
