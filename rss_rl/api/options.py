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
OneFile = Annotated[Rows | None, Typed(Path | None)]
Column = Annotated[str | int | None, Typed(str | None), Parameter(metavar="COLUMN")]
TextColumn = Annotated[str | None, Parameter(metavar="COLUMN")]
NeededColumn = Annotated[str | int, Typed(str), Parameter(metavar="COLUMN")]
Directory = Annotated[str | Path | None, Typed(Path | None), Parameter(metavar="DIR")]
RunDirectory = Annotated[
    str | Path | None, Typed(Path | None), Parameter(name="--run-dir", metavar="DIR")
]
Duration = Annotated[
    str | float | None,
    Typed(str | None),
    Parameter(
        metavar="DURATION",
        help="Longest training time, such as 90s, 5m or 2h, divided among the phases in proportion"
        " to their steps.",
    ),
]
Which = Annotated[int | str, Parameter(metavar="best|latest|STEP", help="Checkpoint of a run.")]
Device = Annotated[str, Parameter(metavar="cpu|cuda|cuda:N", help="Where to compute.")]
Address = Annotated[str | None, Parameter(metavar="HOST:PORT")]
Insecure = Annotated[
    bool, Parameter(help="Also use a cluster that anybody can use without a token.")
]
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
        help="Import components that the run or export names as package.module:OBJECT. This can run"
        " any code, so use it only for files of your own or of somebody you trust."
    ),
]

_FILES = Group("Your own files", sort_key=1)
_WORDS = Group("Words and vectors", sort_key=2)
_BAD_ROWS = Group("Bad rows", sort_key=3)


def _of(panel: Group, meaning: str, metavar: str | None = None) -> Parameter:
    return Parameter(group=panel, help=meaning, metavar=metavar)


class TableOptions(TypedDict, total=False):
    """How a table is read: options of `fit`, of `prepare`, and of a sweep whose base is a table."""

    text_b: Annotated[Column, _of(_FILES, "Column of a pair's second text.", "COLUMN")]
    task: Annotated[
        Literal["classes", "score"],
        _of(
            _FILES,
            "Whether labels are classes or numbers. Default: `fit` guesses from the labels;"
            " classes for `data prepare`.",
        ),
    ]
    low: Annotated[
        float | None, _of(_FILES, "Lowest possible score. Default: the lowest of the training rows")
    ]
    high: Annotated[float | None, _of(_FILES, "Highest possible score.")]
    id: Annotated[
        str | None,
        _of(_FILES, "Column that identifies a row. Default: file name and row.", "COLUMN"),
    ]
    rationale: Annotated[
        str | None,
        _of(
            _FILES,
            "Column with a list of 0 and 1, one for each word of a text that is a list of words: 1"
            " for the words that matter.",
            "COLUMN",
        ),
    ]
    rationale_b: Annotated[str | None, _of(_FILES, "The same for --text-b.", "COLUMN")]
    dev: Annotated[
        OneFile,
        _of(_FILES, "Development split. Default: split off from the training rows.", "FILE"),
    ]
    test: Annotated[
        OneFile, _of(_FILES, "Test split. Default: split off from the training rows.", "FILE")
    ]
    split: Annotated[
        str | Sequence[float],
        Typed(str),
        _of(
            _FILES, "Shares of train, dev and test in a random split; 0.8/0.1/0.1 if not given.",
            "A/B/C",
        ),
    ]  # fmt: skip
    split_seed: Annotated[int, _of(_FILES, "Seed of the random split; 0 if not given.")]
    vectors: Annotated[
        str | Path | Sequence[str | Path] | None,
        Typed(list[str]),
        _of(
            _WORDS,
            "GloVe text (plain, .gz, .zip or ARCHIVE.zip:FILE), word2vec binary (.bin), or "
            "static:FOLDER_OR_PACKAGE for subword vectors such as those of model2vec and wordllama,"
            " or encoder:FOLDER_OR_HUB_NAME for a pretrained encoder that reads each word alone. "
            "Repeat it to concatenate several. Default: random vectors; of `fit`, those of "
            "--pretrained, or of an installed package, if there is one.",
            "FILE",
        ),
    ]
    dim: Annotated[int, _of(_WORDS, "Width of random vectors; 100 if not given.")]
    max_words: Annotated[
        int | None,
        _of(_BAD_ROWS, "Longest text, in words. Preparing reports what long texts cost."),
    ]
    too_long: Annotated[
        Literal["cut", "leave-out"] | None,
        _of(
            _BAD_ROWS,
            "Whether texts over --max-words are cut (the default) or their rows left out. "
            "Both are counted.",
        ),
    ]
    skip_bad_rows: Annotated[
        bool,
        _of(
            _BAD_ROWS,
            "Leave bad rows out, and list them in rejects.jsonl. Default: the first bad row is "
            "an error.",
        ),
    ]


class FitOptions(TableOptions, total=False):
    """How `fit` reads a table and what it makes of it; keys of a sweep whose base is a table."""

    keep: Annotated[
        float | None,
        Parameter(
            metavar="SHARE",
            help="Share of the words to keep, `reward.target_share`. Default: 0.4, or 0.2 if texts "
            "have over 100 words on average.",
        ),
    ]
    config: Annotated[
        str | Path | None,
        Typed(str | None),
        Parameter(
            help="Train with this configuration, such as own_context, changed only by --keep and "
            "KEY=VALUE settings. Default: own, own_pairs or own_long, adapted to the data.",
        ),
    ]
    pretrained: Annotated[
        str | None,
        Parameter(
            metavar="FOLDER_OR_HUB_NAME",
            help="A transformer to use. Without a GPU it reads each word alone, which gives the "
            "word vectors, and each text once, as the policy's context. With a GPU it is the "
            "classifier.",
        ),
    ]
    phrases: Annotated[
        bool,
        Parameter(
            help="Of long texts, keep phrases like those that people mark. Default: single words, "
            "which predict a little better."
        ),
    ]
