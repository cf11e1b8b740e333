"""`rss-rl explain-classifier`: train a policy that marks the words a given classifier needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rss_rl.cli import options
from rss_rl.cli.options import argument, console, end_run, option

EPILOG = """
Examples:

`rss-rl explain-classifier SENTIMENT_FOLDER reviews.csv --text review --keep 0.2`

`rss-rl explain-classifier my_module:probabilities reviews.csv --text review --out runs/explained`

`rss-rl select runs/explained --trust-plugins "A dull film with one good scene."`

The classifier stays frozen. Of a function only the probabilities are used, and it is asked about
words as they are written. The texts need no labels; give at least a few hundred, of the kind that
you want to explain. If the classifier is a function, commands that open the run later need
--trust-plugins, because they import its module.
"""


def explain_classifier(
    classifier: Annotated[
        str,
        argument(
            "CLASSIFIER",
            "Folder of an AutoModelForSequenceClassification with its tokenizer, its name on"
            " the Hugging Face hub, or package.module:FUNCTION from a list of texts to the"
            " probability of each class.",
        ),
    ],
    data: Annotated[Path, argument("FILE", "Texts: .csv, .tsv, .jsonl or .parquet.")],
    text: Annotated[str, option("--text COLUMN", "Column of the text.")],
    overrides: options.OwnSettings = None,
    keep: Annotated[float, option("--keep SHARE", "Share of the words to mark.")] = 0.2,
    of_class: Annotated[
        str | None,
        option(
            "--class NAME",
            "Mark what speaks for this class in every text. Default: what speaks for the "
            "class that the classifier predicts.",
        ),
    ] = None,
    vectors: options.Vectors = None,
    contextual: Annotated[
        bool,
        option(
            "--contextual",
            "The policy also reads the classifier's encoder states of each word in its whole"
            " text, at the cost of one forward pass per text.",
        ),
    ] = False,
    time: options.Time = None,
    out: Annotated[Path, option("--out DIR", "Directory of the run.")] = Path("runs/explained"),
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
) -> None:
    """Train a policy that marks the words that a classifier needs for its prediction."""
    from rss_rl.api.explaining import explain_classifier as explain
    from rss_rl.inference.predict_file import read_texts

    rows = list(read_texts(data, [text], 1))
    for row in rows:
        if row.fault is not None:
            raise row.fault
    texts = [t if isinstance(t, str) else " ".join(t) for row in rows for t in row.texts]
    shown = console(stderr=json_)
    run = explain(
        classifier,
        texts,
        keep=keep,
        of_class=of_class,
        vectors=vectors or None,
        contextual=contextual,
        time=time,
        out=out,
        overrides=overrides or [],
        overwrite=overwrite,
        console=shown,
    )
    end_run(run, shown, as_json=json_, page=True)
