"""`rss-rl select`: the words of a text that a trained run keeps, and its prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

import rss_rl
from rss_rl.api.options import TrustPlugins, Which
from rss_rl.api.terminal import plain_table, say
from rss_rl.cli.show import Json, console, echo_json

if TYPE_CHECKING:
    from rss_rl.inference.explanation import Explanation, MarkedSentence

_MOST_SHOWN = 10
"""Classes shown; the most probable if there are more."""


def select(
    run: Annotated[Path, Parameter(name="RUN|EXPORT")],
    texts: Annotated[list[str], Parameter(name="TEXT")],
    *,
    share: float | None = None,
    sampled: Annotated[int | None, Parameter(metavar="SEED")] = None,
    which: Which = "best",
    trust_plugins: TrustPlugins = False,
    json_: Json = False,
) -> None:
    """Show which words of a text a model selects, and what it predicts from them.

    Heads attend to dependents. A token that is neither is not kept.

    Args:
        run: Directory of a run or of an export.
        texts: One text, or two for a pair.
        share: Share of the words to keep instead: the most probable ones, at least one.
        sampled: Draw the selection at random. Default: tokens with probability over one half.

    Examples:
        `rss-rl select runs/reviews "A dull film with one good scene."`

        `rss-rl select runs/reviews "A dull film with one good scene." --share 0.2`

        `rss-rl select runs/sick "A man is playing a guitar" "Nobody is playing" --sampled 7`
    """
    model = rss_rl.load(run, which, trust_plugins=trust_plugins)
    example = texts[0] if len(texts) == 1 else tuple(texts)
    (explanation,) = model.predict([example], sampled_seed=sampled, share=share)
    if json_:
        echo_json(explanation.to_dict())
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
        say(out, "? not in the vocabulary", "dim")
    if any(sentence.kept.any() for sentence in explanation.sentences):
        say(out, f"kept {explanation.kept:.0%} of the tokens (in brackets above)")
    else:
        say(out, "no token was kept")
    if explanation.prediction is None:
        say(out, "no prediction: the run trained no classifier", "dim")
        return
    if explanation.class_probabilities is None:
        say(out, f"prediction: {explanation.prediction:.3f}", "bold")
        return
    out.print(Text("prediction: ").append(str(explanation.prediction), "bold"))
    shown = list(explanation.class_probabilities.items())
    if len(shown) > _MOST_SHOWN:
        shown = sorted(shown, key=lambda item: -item[1])[:_MOST_SHOWN]
    for name, share in shown:
        out.print(Text(f"  {name:16} {share:6.1%} ").append("█" * round(share * 30), "cyan"))


def _marked(sentence: MarkedSentence) -> Text:
    """The words on a line, kept ones in bold and in brackets."""
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
