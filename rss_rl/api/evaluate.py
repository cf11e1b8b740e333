"""Score a split, or a new labelled file, with trained runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from rss_rl.api.options import Runs, TextColumn, TrustPlugins, Typed, Which, run_paths
from rss_rl.api.terminal import SafeConsole, busy
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rss_rl.training.evaluation import Mode


_Modes = Literal["all", "thresholded", "sampled", "random"]


def evaluate(
    runs: Runs,
    *,
    split: str = "test",
    input: Annotated[str | Path | None, Typed(Path | None), Parameter(metavar="FILE")] = None,
    text: TextColumn = None,
    text_b: TextColumn = None,
    label: TextColumn = None,
    mode: Annotated[Sequence[Mode], Typed(list[_Modes])] = (),
    marks: bool = False,
    scores: Annotated[Sequence[str | Path], Typed(list[Path]), Parameter(metavar="FILE")] = (),
    share: Annotated[float | None, Parameter(validator=Number(gte=0, lte=1))] = None,
    which: Which = "best",
    device: str | None = None,
    trust_plugins: TrustPlugins = False,
) -> dict[str, dict[str, Any]]:
    """Score a split, or a new labelled file, with a checkpoint of a run, or of several.

    With --marks the data must say which words people marked, as eraser-movies and yelp-hat do;
    `rss-rl data list` lists more. A text without any mark does not count. The run must be of the
    faithful form. `top-k`, `random`, the weights of a linear classifier (TF-IDF and logistic
    regression, summed over classes) and scores from files keep the policy's mean share of words,
    or that of --share.

    A line of a scores file is `{"id": "a review", "scores": [0.1, 0.7, 0.2]}`: the example's id, as
    `rss-rl data show` prints it, and a number for each word. For a pair of texts, give two lists.

    Comprehensiveness and sufficiency are defined as in ERASER. They use the classifier that reads
    all words, and say how much the probability of its class falls without the selected words, and
    with only the selected words. Similarity is the area under the ROC curve against single
    annotators; 0.5 is chance.

    AUPRC and the rows `at budgets` are defined as in Brinner and Zarriess (EMNLP 2024). `at
    budgets` is the mean over the best 5, 10, ..., 95% of a text's words. IOU F1 at budgets uses the
    best overlaps, without a threshold.

    Args:
        runs: Directory of a run, or several.
        split: Split to score: dev, test, train.
        input: Labelled CSV, TSV, JSON lines or Parquet file to score in place of a split; its
            scores are also kept in the run, in evaluated.json.
        text: Its column of the text, or of a pair's first. Default: as in the training table.
        text_b: Its column of a pair's second text.
        label: Its column of the label. Default: as in the training table.
        mode: How tokens are selected; repeatable. `all` is the comparison trained on all tokens.
            Default: all modes of the run.
        marks: Compare the selections with the words that people marked.
        scores: With --marks: another method's scores of the words; repeatable.
        share: With --marks: share of the words for all selections but the policy's. Default: the
            policy's mean share.
        device: cpu, cuda, ... Default: the device that the run trained on.

    Returns:
        Of each run, its scores by mode and metric.

    Raises:
        RssError: no such run, split, checkpoint or mode, or the data are not those of the training.

    Examples:
        `rss-rl evaluate runs/demo` scores the test split as the final report does.

        `rss-rl evaluate runs/demo --split dev --mode thresholded --which latest --json`

        `rss-rl evaluate runs/reviews --input new.csv` scores rows that came later.

        `rss-rl evaluate runs/movies-* --marks` compares the selections with people's.

        `rss-rl evaluate runs/movies --scores other.jsonl --share 0.2` adds another method's scores.
    """
    marks = marks or bool(scores)
    if marks and mode:
        raise ConfigError("--mode is not for --marks", remedy="Leave out one of them")
    if share is not None and not marks:
        raise ConfigError("--share is for --marks", remedy="Give --marks, too")
    columns = [name for name in (text, text_b, label) if name is not None]
    if (marks and input is not None) or (columns and input is None):
        raise ConfigError("--text and --label are of --input, which has no marks")
    from rss_rl.api.run import Run
    from rss_rl.data.score_file import read_scores
    from rss_rl.results.agreement import score_agreement
    from rss_rl.results.linear import linear_rankings
    from rss_rl.results.scores import open_with_data

    scores_of: dict[str, dict[str, Any]] = {}
    for path in run_paths(runs):
        run = Run(path, trust_plugins=trust_plugins)
        if not marks:
            scores_of[str(path)] = run.evaluate(
                split, mode, which=which, device=device, input=input, columns=columns
            )
            continue
        config, models, prepared, on = open_with_data(path, which, device, run.trust)
        examples = prepared.split(split)
        with busy(SafeConsole(stderr=True), f"scoring {path}") as tell:
            scores_of[str(path)] = score_agreement(
                models,
                examples,
                config,
                share=share,
                others=linear_rankings(prepared, examples)
                | {str(file): read_scores(Path(file), examples) for file in scores},
                device=on,
                progress=lambda done, end: tell(f"scoring: {done:,} of {end:,}"),
            )
    return scores_of
