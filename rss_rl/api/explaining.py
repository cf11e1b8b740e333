"""What a trained model selects in a text: for programs and terminals, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import rss_rl
from rss_rl.api.options import ModelFolder, TrustPlugins, Typed, Which
from rss_rl.api.terminal import SafeConsole, busy
from rss_rl.errors import StorageError

if TYPE_CHECKING:
    from rss_rl.inference.explanation import Explanation

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
    model.check_number(texts)  # a tuple of several would be the words of one text
    example = texts[0] if len(texts) == 1 else tuple(texts)
    return model.predict([example], share=share)[0]


def explain(
    run: ModelFolder,
    texts: _Texts,
    *,
    out: Annotated[str | Path, Typed(Path), Parameter(metavar="FILE.html")] = "explain.html",
    which: Which = "best",
    trust_plugins: TrustPlugins = False,
) -> Path:
    """Write an HTML page about a text: its words shaded by selection probability, and how the
    prediction changes when a word is forced in or out.

    Args:
        run: Directory of a run or of an export.
        texts: One text, or two for a pair.
        out: Page to write.

    Examples:
        `rss-rl explain runs/reviews "A dull film with one good scene."`

        `rss-rl explain runs/sick "A man is playing" "Nobody is playing" --out pair.html`
    """
    from rss_rl.durable import disk_errors, replace_file
    from rss_rl.inference.facts import gather_facts
    from rss_rl.pages.explanation import explanation_page

    out, name = Path(out), Path(run).resolve().name
    model = rss_rl.load(run, which, trust_plugins=trust_plugins)
    with busy(SafeConsole(stderr=True), "reading") as tell:
        encoded = model.encode(texts)
        facts = gather_facts(model, encoded, progress=lambda done: tell(f"{done} words tried"))
    page = explanation_page(f"What {name} reads", model.labels, facts, model.about)
    with disk_errors(out, "cannot be written", "Give another --out", StorageError):
        replace_file(out, page)
    return out
