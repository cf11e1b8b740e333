"""What a trained model selects in a text: for programs and terminals, and as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

import rss_rl
from rss_rl.api.options import ModelFolder, TextColumn, TrustPlugins, Typed, Which
from rss_rl.api.terminal import SafeConsole, busy
from rss_rl.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from rss_rl.inference.explanation import Explanation
    from rss_rl.inference.model import Encoded, Model

_Count = Annotated[int, Parameter(validator=Number(gte=1))]
_Texts = Annotated[Sequence[str], Typed(list[str]), Parameter(name="TEXT")]


def select(
    run: ModelFolder,
    texts: _Texts,
    *,
    share: float | None = None,
    which: Which = "best",
    trust_plugins: TrustPlugins = False,
) -> Explanation:
    """Show which words of a text a model selects, and what it predicts from them.

    Heads attend to dependents. A token that is neither is not kept.

    Args:
        run: Directory of a run or of an export.
        texts: One text, or two for a pair.
        share: Share of the words to keep instead: the most probable ones, at least one.

    Examples:
        `rss-rl select runs/reviews "A dull film with one good scene."`

        `rss-rl select runs/reviews "A dull film with one good scene." --share 0.2`

        `rss-rl select runs/sick "A man is playing a guitar" "Nobody is playing"`
    """
    model = rss_rl.load(run, which, trust_plugins=trust_plugins)
    example = texts[0] if len(texts) == 1 else tuple(texts)
    return model.predict([example], share=share)[0]


def explain(
    run: ModelFolder,
    texts: _Texts = (),
    *,
    file: Annotated[str | Path | None, Typed(Path | None), Parameter(metavar="FILE")] = None,
    text: TextColumn = None,
    text_b: TextColumn = None,
    limit: _Count = 10,
    flips: _Count = 200,
    out: Annotated[str | Path, Typed(Path), Parameter(metavar="FILE.html")] = "explain.html",
    which: Which = "best",
    trust_plugins: TrustPlugins = False,
) -> Path:
    """Write an HTML page about a text: its words shaded by selection probability, attention, and
    how the prediction changes when a word is forced in or out.

    Args:
        run: Directory of a run or of an export.
        texts: One text, or two for a pair.
        file: Texts in a CSV, TSV, JSON-lines or Parquet file.
        text: Column of the text, or of a pair's first.
        text_b: Column of a pair's second text.
        limit: Rows of FILE shown.
        flips: How many words of a text can be forced in or out: kept words first, then the most
            probable.
        out: Page to write.

    Examples:
        `rss-rl explain runs/reviews "A dull film with one good scene."`

        `rss-rl explain runs/sick "A man is playing" "Nobody is playing" --out pair.html`

        `rss-rl explain models/reviews --file reviews.csv --text review --limit 20`
    """
    from rss_rl.durable import disk_errors, is_same_file, replace_file

    run, out = Path(run), Path(out)
    if bool(texts) == (file is not None):
        raise ConfigError("give either texts or --file", remedy='rss-rl explain RUN "A text."')
    if file is not None and is_same_file(Path(file), out):
        raise ConfigError(
            "is the input itself and would be lost", where=str(out), remedy="Give another --out"
        )
    from rss_rl.inference.facts import gather_facts
    from rss_rl.pages.explanation import about, explanation_page

    model = rss_rl.load(run, which, trust_plugins=trust_plugins)
    if file is None:
        examples = [model.encode(texts)]
    else:
        examples = _from_file(model, Path(file), tuple(filter(None, (text, text_b))), limit)
    facts = []
    with busy(SafeConsole(stderr=True), "reading") as tell:
        for number, example in enumerate(examples, start=1):
            place = f"example {number} of {len(examples)}"
            facts.append(gather_facts(model, example, flips, partial(_tried, tell, place)))
    page = explanation_page(f"What {run.resolve().name} reads", model.labels, facts, about(model))
    with disk_errors(out, "cannot be written", "Give another --out", StorageError):
        replace_file(out, page)
    return out


def _tried(tell: Callable[[str], None], place: str, done: int) -> None:
    tell(f"{place}: {done} words tried")


def _from_file(model: Model, file: Path, columns: tuple[str, ...], limit: int) -> list[Encoded]:
    from rss_rl.inference.predict import read_texts

    found = []
    for row in islice(read_texts(file, columns, model.inputs.sentences), limit):
        if row.fault is not None:
            raise row.fault
        found.append(model.encode(row.texts, row.where))
    return found
