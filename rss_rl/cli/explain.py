"""`rss-rl explain`: an HTML page on what a trained model selects and predicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rss_rl.cli import options
from rss_rl.cli.options import argument, checkpoint, console, option, text_columns, trust
from rss_rl.durable import disk_errors, is_same_file, replace_file
from rss_rl.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from rss_rl.inference.facts import Facts
    from rss_rl.inference.model import Encoded, Model

EPILOG = """
Examples:

`rss-rl explain runs/reviews "A dull film with one good scene."`

`rss-rl explain runs/sick "A man is playing" "Nobody is playing" --out pair.html --figure pair.svg`

`rss-rl explain models/reviews --file reviews.csv --text review --limit 20`
"""


def explain(
    path: options.ModelPath,
    texts: Annotated[
        list[str] | None,
        argument("[TEXT]...", "One text, or two: a pair, or passage and question."),
    ] = None,
    file: Annotated[
        Path | None, option("--file FILE", "Texts in a CSV, TSV, JSON-lines or Parquet file.")
    ] = None,
    text: options.TextColumn = None,
    text_b: options.TextB = None,
    limit: Annotated[int, option("--limit", "Rows of FILE shown.", min=1)] = 10,
    flips: Annotated[
        int,
        option(
            "--flips",
            "How many words of a text can be forced in or out: kept words first, then the "
            "most probable.",
            min=1,
        ),
    ] = 200,
    out: Annotated[Path, option("--out FILE.html", "Page to write.")] = Path("explain.html"),
    figure: Annotated[
        Path | None,
        option(
            "--figure FILE.png|svg",
            "Also write a heat map of the attention; files are numbered if there are several.",
        ),
    ] = None,
    which: options.Which = "best",
    trust_plugins: options.TrustPlugins = False,
) -> None:
    """Write an HTML page about a text: its words shaded by selection probability, attention, and
    how the prediction changes when a word is forced in or out.
    """
    _check(texts, file, out, figure)
    from rss_rl.inference.model import load_model
    from rss_rl.pages.explanation import about, explanation_page

    model = load_model(path, checkpoint(which), trust(trust_plugins))
    encoded = (
        _from_file(model, file, text_columns(text, text_b), limit)
        if file
        else [model.encode(texts or [])]
    )
    facts = _gather(model, encoded, flips)
    name = path.resolve().name
    text = explanation_page(f"What {name} reads", model.labels, facts, about(model))
    with disk_errors(out, "cannot be written", "Give another --out", StorageError):
        replace_file(out, text)
    typer.echo(f"wrote {out}")
    if figure is not None:
        _write_figures(figure, facts)


def _check(texts: list[str] | None, file: Path | None, out: Path, figure: Path | None) -> None:
    if bool(texts) == (file is not None):
        raise ConfigError("give either texts or --file", remedy='rss-rl explain RUN "A text."')
    if file is not None and is_same_file(file, out):
        raise ConfigError(
            "is the input itself and would be lost", where=str(out), remedy="Give another --out"
        )
    if figure is not None and figure.suffix not in (".png", ".svg"):
        raise ConfigError("--figure needs a .png or .svg file", where=str(figure))


def _from_file(model: Model, file: Path, columns: tuple[str, ...], limit: int) -> list[Encoded]:
    from rss_rl.inference.predict import read_texts

    found = []
    for row in read_texts(file, columns, model.inputs.sentences):
        if row.fault is not None:
            raise row.fault
        found.append(model.encode(row.texts, row.where))
        if len(found) == limit:
            break
    return found


def _gather(model: Model, examples: list[Encoded], flips: int) -> list[Facts]:
    from rss_rl.inference.facts import gather_facts

    facts = []
    with console(stderr=True).status("reading") as status:
        for number, example in enumerate(examples, start=1):

            def show_progress(done: int, at: int = number) -> None:
                status.update(f"example {at} of {len(examples)}: {done} words tried")

            facts.append(gather_facts(model, example, flips, show_progress))
    return facts


def _write_figures(path: Path, examples: list[Facts]) -> None:
    from rss_rl.logs.attention_figure import write_attention

    shown = [
        (sentence.words, attention)
        for facts in examples
        for sentence, attention in zip(facts.explanation.sentences, facts.attention, strict=True)
        if attention is not None and attention.any()
    ]
    if not shown:
        typer.echo("no figure: no head attends to a dependent", err=True)
    for number, (words, attention) in enumerate(shown, start=1):
        name = path if len(shown) == 1 else path.with_stem(f"{path.stem}-{number}")
        with disk_errors(name, "cannot be written", "Give another --figure", StorageError):
            write_attention(name, words, attention)
        typer.echo(f"wrote {name}")
