"""`rss-rl select`: the words of a text that a trained run keeps, and its prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rss_rl.api.terminal import plain_table
from rss_rl.cli import options
from rss_rl.cli.options import argument, checkpoint, console, option, trust
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rss_rl.inference.explanation import Explanation, MarkedSentence

_MOST_SHOWN = 10
"""Classes, sentences or candidates shown; the most probable if there are more."""

EPILOG = """
Examples:

`rss-rl select runs/reviews "A dull film with one good scene."`

`rss-rl select runs/sick "A man is playing a guitar" "Nobody is playing" --sampled 7`

`rss-rl select runs/explained "A dull film with one good scene." --check`

`rss-rl select SENTIMENT_FOLDER "A dull film with one good scene." --keep 0.2`
"""


def select(
    path: Annotated[
        Path,
        argument(
            "RUN|EXPORT|CLASSIFIER",
            "Directory of a run or of an export. With --keep: folder of a text classifier of the"
            " transformers library, or its name on the Hugging Face hub.",
        ),
    ],
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
    check: Annotated[
        bool,
        option(
            "--check",
            "Ask the classifier that the run explains; where it is not sure of its class from"
            " these words, choose others.",
        ),
    ] = False,
    keep: Annotated[
        float | None,
        option(
            "--keep SHARE",
            "Without training: mark this share of the words of the text, by the gradient of a"
            " classifier.",
        ),
    ] = None,
    of_class: Annotated[
        str | None,
        option("--class NAME", "With --keep: mark the words that speak for this class."),
    ] = None,
    which: options.Which = "best",
    trust_plugins: options.TrustPlugins = False,
    json_: options.Json = False,
) -> None:
    """Show which words of a text a model selects, and what it predicts from them.

    Heads attend to dependents. A token that is neither is not kept.
    """
    if keep is None:
        explanation = _of_model(path, texts, sampled, check, which, trust_plugins, of_class)
    else:
        refused = {
            "--check": check,
            "--sampled": sampled is not None,
            "--which": which != "best",
            "--trust-plugins": trust_plugins,
        }
        explanation = _of_classifier(path, texts, keep, of_class, refused)
    if json_:
        typer.echo(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
    else:
        print_explanation(console(), explanation)


def _of_model(
    path: Path,
    texts: list[str],
    sampled: int | None,
    check: bool,
    which: str,
    trust_plugins: bool,
    of_class: str | None,
) -> Explanation:
    from rss_rl.inference.artifact import is_export
    from rss_rl.inference.model import load_model

    if not is_export(path) and (path / "model.safetensors").exists():
        raise ConfigError(
            "is neither a run nor an export, but a pretrained transformer",
            where=str(path),
            remedy="If it is a text classifier, give --keep SHARE",
        )
    if of_class is not None:
        raise ConfigError("--class needs --keep", remedy="Give the share to keep")
    if check and sampled is not None:
        raise ConfigError("--check takes no drawn selection", remedy="Leave out --sampled")
    model = load_model(path, checkpoint(which), trust(trust_plugins))
    examples = [texts[0] if len(texts) == 1 else tuple(texts)]
    if check:
        return model.check(examples)[0]
    return model.predict(examples, sampled_seed=sampled)[0]


def _of_classifier(
    path: Path, texts: list[str], keep: float, of_class: str | None, refused: dict[str, bool]
) -> Explanation:
    from rss_rl.api.explaining import mark_words
    from rss_rl.inference.artifact import is_export
    from rss_rl.runs.run_directory import STATUS_FILE

    if is_export(path) or (path / STATUS_FILE).exists():
        raise ConfigError(
            "is a run or an export, whose policy has learnt how much to keep",
            where=str(path),
            remedy="Leave out --keep, or name the folder of a text classifier",
        )
    for option_, is_given in refused.items():
        if is_given:
            raise ConfigError(
                f"{option_} is for a run, --keep for a classifier without one",
                remedy="Leave out one of them",
            )
    if len(texts) > 1:
        raise ConfigError("--keep takes one text", remedy="Put it in quotation marks")
    return mark_words(str(path), texts, keep=keep, of_class=of_class)[0]


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
