"""`rss-rl explain`: an HTML page on what a trained model selects and predicts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

import rss_rl
from rss_rl.api.options import TextColumn, TrustPlugins, Typed, Which
from rss_rl.api.terminal import busy
from rss_rl.cli.show import console, echo
from rss_rl.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from rss_rl.inference.facts import Facts
    from rss_rl.inference.model import Encoded, Model

_Count = Annotated[int, Parameter(validator=Number(gte=1))]


def explain(
    run: Annotated[Path, Parameter(name="RUN|EXPORT")],
    texts: Annotated[Sequence[str], Typed(list[str]), Parameter(name="TEXT")] = (),
    *,
    file: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    text: TextColumn = None,
    text_b: TextColumn = None,
    limit: _Count = 10,
    flips: _Count = 200,
    out: Annotated[Path, Parameter(metavar="FILE.html")] = Path("explain.html"),
    which: Which = "best",
    trust_plugins: TrustPlugins = False,
) -> None:
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

    if bool(texts) == (file is not None):
        raise ConfigError("give either texts or --file", remedy='rss-rl explain RUN "A text."')
    if file is not None and is_same_file(file, out):
        raise ConfigError(
            "is the input itself and would be lost", where=str(out), remedy="Give another --out"
        )
    from rss_rl.pages.explanation import about, explanation_page

    model = rss_rl.load(run, which, trust_plugins=trust_plugins)
    if file is None:
        encoded = [model.encode(texts)]
    else:
        encoded = _from_file(model, file, tuple(filter(None, (text, text_b))), limit)
    facts = _gather(model, encoded, flips)
    page = explanation_page(f"What {run.resolve().name} reads", model.labels, facts, about(model))
    with disk_errors(out, "cannot be written", "Give another --out", StorageError):
        replace_file(out, page)
    echo(f"wrote {out}")


def _from_file(model: Model, file: Path, columns: tuple[str, ...], limit: int) -> list[Encoded]:
    from rss_rl.inference.predict import read_texts

    found = []
    for row in islice(read_texts(file, columns, model.inputs.sentences), limit):
        if row.fault is not None:
            raise row.fault
        found.append(model.encode(row.texts, row.where))
    return found


def _gather(model: Model, examples: list[Encoded], flips: int) -> list[Facts]:
    from rss_rl.inference.facts import gather_facts

    facts = []
    with busy(console(stderr=True), "reading") as tell:
        for number, example in enumerate(examples, start=1):

            def show_progress(done: int, at: int = number) -> None:
                tell(f"example {at} of {len(examples)}: {done} words tried")

            facts.append(gather_facts(model, example, flips, show_progress))
    return facts
