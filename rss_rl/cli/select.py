"""`rss-rl select`: the words of a text that a trained run keeps, and its prediction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rss_rl.api.terminal import plain_table
from rss_rl.cli import options
from rss_rl.cli.options import argument, checkpoint, console, option, trust

if TYPE_CHECKING:
    from rss_rl.inference.explanation import Explanation, MarkedSentence

_MOST_SHOWN = 10
"""Classes, sentences or candidates shown; the most probable if there are more."""

EPILOG = """
Examples:

`rss-rl select runs/reviews "A dull film with one good scene."`

`rss-rl select runs/sick "A man is playing a guitar" "Nobody is playing" --sampled 7`
"""


def select(
    path: options.ModelPath,
    texts: Annotated[
        list[str], argument("TEXT...", "One text, or two: a pair, or a passage and a question.")
    ],
    sampled: Annotated[
        int | None,
        option(
            "--sampled SEED",
            "Draw the selection at random. Default: tokens with probability over one half.",
        ),
    ] = None,
    which: options.Which = "best",
    trust_plugins: options.TrustPlugins = False,
    json_: options.Json = False,
) -> None:
    """Show which words of a text a model selects, and what it predicts from them.

    Heads attend to dependents. A token that is neither is not kept.
    """
    from rss_rl.inference.model import load_model

    model = load_model(path, checkpoint(which), trust(trust_plugins))
    example = texts[0] if len(texts) == 1 else tuple(texts)
    (explanation,) = model.predict([example], sampled_seed=sampled)
    if json_:
        typer.echo(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
    else:
        print_explanation(console(), explanation)


def print_explanation(out: Console, explanation: Explanation, *, details: bool = True) -> None:
    """Print the sentences with kept words marked, a table of tokens, and the prediction."""
    for sentence in explanation.sentences:
        out.print(_marked(sentence), soft_wrap=True)
    if details:
        for sentence in explanation.sentences:
            out.print()
            out.print(_token_table(sentence))
        out.print()
    if any(not sentence.known.all() for sentence in explanation.sentences):
        out.print("? not in the vocabulary", style="dim")
    if any(sentence.kept.any() for sentence in explanation.sentences):
        out.print(f"kept {explanation.kept:.0%} of the tokens ([bold]bold[/bold] above)")
    else:
        out.print("no token was kept")
    if explanation.prediction is None:
        out.print("no prediction: the run trained no classifier", style="dim")
        return
    if explanation.class_probabilities is None:
        out.print(f"prediction: [bold]{explanation.prediction:.3f}[/bold]")
        return
    out.print(Text("prediction: ").append(str(explanation.prediction), "bold"))
    likeliest = sorted(explanation.class_probabilities.items(), key=lambda item: -item[1])
    shown = explanation.class_probabilities.items()
    for name, share in shown if len(shown) <= _MOST_SHOWN else likeliest[:_MOST_SHOWN]:
        bar = "█" * round(share * 30)
        out.print(Text(f"  {name:16} {share:6.1%} ").append(bar, "cyan"))


def _marked(sentence: MarkedSentence) -> Text:
    """The words on a line, kept ones bold and in brackets, which also works without colours."""
    line = Text()
    for index in range(len(sentence.words)):
        kept = bool(sentence.kept[index])
        shown = _shown(sentence, index)
        line.append(f"[{shown}]" if kept else shown, "bold green" if kept else "dim").append(" ")
    return line


def _token_table(sentence: MarkedSentence) -> Table:
    from rss_rl.types import DEPENDENT, HEAD

    table = plain_table(["token", "head", "dependent"], left=1)
    for index in range(len(sentence.words)):
        kept = bool(sentence.kept[index])
        cells = [_cell(sentence, role, index) for role in (HEAD, DEPENDENT)]
        table.add_row(Text(_shown(sentence, index), "bold green" if kept else "dim"), *cells)
    return table


def _shown(sentence: MarkedSentence, index: int) -> str:
    """A word, with a question mark if it is not in the vocabulary."""
    return sentence.words[index] + ("" if sentence.known[index] else "?")


def _cell(sentence: MarkedSentence, role: int, index: int) -> Text:
    """Probability of one role, and whether it is selected."""
    selected = bool(sentence.selection[role, index])
    mark = "●" if selected else "·"
    share = "" if sentence.probabilities is None else f"{sentence.probabilities[role, index]:.2f} "
    return Text(f"{share}{mark}", "bold green" if selected else "dim")
