"""What several functions take, and how the command line reads a parameter.

A command is the Python function of its name: options, defaults and help are the function's
signature and docstring. Annotations say what only one of the two sides has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar

from cyclopts import Group, Parameter

T = TypeVar("T")


@dataclass(frozen=True)
class Typed:
    """The type that the command line reads, where Python takes more."""

    type: Any


NO_OPTION = "not an option"
PythonOnly = Annotated[T, NO_OPTION]
"""A parameter that the command line leaves out."""

Rows = str | Path | Sequence[str | Path] | Iterable[Mapping[str, Any]] | Any
"""A .csv, .tsv, .jsonl or .parquet file or several, rows as mappings, a pandas, Arrow or Hugging
Face table, or the name of a source."""
Config = str | Path | Mapping[str, Any]
"""A YAML file, the name of a shipped configuration, a tree of settings, or a run."""
Overrides = Annotated[
    Sequence[str] | Mapping[str, Any], Typed(list[str]), Parameter(name="KEY=VALUE")
]
"""`["learner.policy.l2=1e-4"]` or `{"learner.policy.l2": 1e-4}`."""
OneFile = Annotated[Rows | None, Typed(Path | None), Parameter(metavar="FILE")]
Column = Annotated[str | int | None, Typed(str | None), Parameter(metavar="COLUMN")]
TextColumn = Annotated[str | None, Parameter(metavar="COLUMN")]
NeededColumn = Annotated[str | int, Typed(str), Parameter(metavar="COLUMN")]
Directory = Annotated[str | Path | None, Typed(Path | None), Parameter(metavar="DIR")]
Duration = Annotated[
    str | float | None,
    Typed(str | None),
    Parameter(
        metavar="DURATION",
        help="Longest time for everything, such as 90s, 5m or 2h: divided among the phases, and"
        " the comparison with all words, by what their updates were measured to cost.",
    ),
]
ModelFolder = Annotated[str | Path, Typed(Path), Parameter(name="RUN|EXPORT")]
Runs = Annotated[str | Path | Sequence[str | Path], Typed(list[Path]), Parameter(name="RUN")]
Texts = Annotated[Sequence[str], Typed(list[str]), Parameter(name="TEXT")]
Which = Annotated[int | str, Parameter(metavar="best|latest|STEP", help="Checkpoint of a run.")]
Device = Annotated[str, Parameter(metavar="cpu|cuda|cuda:N", help="Where to compute.")]
Address = Annotated[str | None, Parameter(metavar="HOST:PORT")]
TakeOver = Annotated[
    bool,
    Parameter(
        help="Write to --storage even if another process seems to write there. Use it only if that"
        " process has stopped."
    ),
]
TrustPlugins = Annotated[
    bool,
    Parameter(
        help="Import components that the run or export names as package.module:OBJECT, and open"
        " data at a URI that it names. This can run any code, so use it only for files of your own"
        " or of somebody you trust."
    ),
]

_FILES = Parameter(group=Group("Your own files", sort_key=1))
_WORDS = Parameter(group=Group("Words and vectors", sort_key=2))
_BAD_ROWS = Parameter(group=Group("Bad rows", sort_key=3))


def run_paths(runs: Runs) -> list[Path]:
    """The directories of one run or of several."""
    return [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]


class TableOptions(TypedDict, total=False):
    """How a table is read: options of `fit`, of `prepare`, and of a sweep whose base is a table.

    Args:
        text_b: Column of a pair's second text.
        task: Whether labels are classes or numbers. Default: `fit` guesses from the labels, `data
            prepare` takes classes.
        low: Lowest possible score. Default: the lowest of the training rows.
        high: Highest possible score.
        id: Column that identifies a row. Default: file name and row.
        rationale: Column with a list of 0 and 1, one for each word of a text that is a list of
            words: 1 for the words that matter. Empty where nobody marked words.
        rationale_b: The same for --text-b.
        weight: Column with how often a training row counts, a number above 0. Default: once.
        dev: Development split. Default: split off from the training rows.
        test: Test split. Default: split off from the training rows.
        split: Shares of train, dev and test in a random split. Default: 0.8/0.1/0.1; `fit` gives
            dev and test of a large table 10,000 rows each.
        split_seed: Seed of the random split. Default: 0.
        vectors: GloVe text or word2vec binary (plain or .gz), or
            static:FOLDER_OR_PACKAGE for subword vectors such as those of model2vec and wordllama,
            or encoder:FOLDER_OR_HUB_NAME for a pretrained encoder that reads each word alone.
            Repeat it to concatenate several. Default: random vectors; of `fit`, those of
            --pretrained, or of an installed package, if there is one.
        dim: Width of random vectors. Default: 100.
        label_weights: Add to each word's vector what it says about the labels: its weight, and
            that of its parts, in linear classifiers of the training texts. Default: `fit` does on
            single texts, `data prepare` does not.
        max_words: Longest text, in words; longer ones are cut, and counted.
        skip_bad_rows: Leave bad rows out, and list them in rejects.jsonl. Default: the first bad
            row is an error.
    """

    text_b: Annotated[Column, _FILES]
    task: Annotated[Literal["classes", "score"], _FILES]
    low: Annotated[float | None, _FILES]
    high: Annotated[float | None, _FILES]
    id: Annotated[TextColumn, _FILES]
    rationale: Annotated[TextColumn, _FILES]
    rationale_b: Annotated[TextColumn, _FILES]
    weight: Annotated[TextColumn, _FILES]
    dev: Annotated[OneFile, _FILES]
    test: Annotated[OneFile, _FILES]
    split: Annotated[str | Sequence[float], Typed(str), Parameter(metavar="A/B/C"), _FILES]
    split_seed: Annotated[int, _FILES]
    vectors: Annotated[
        str | Path | Sequence[str | Path] | None,
        Typed(list[str]),
        Parameter(metavar="FILE"),
        _WORDS,
    ]
    dim: Annotated[int, _WORDS]
    label_weights: Annotated[bool, Parameter(negative="--no-label-weights"), _WORDS]
    max_words: Annotated[int | None, _WORDS]
    skip_bad_rows: Annotated[bool, _BAD_ROWS]
