"""Write a page that explains a trained model's reading of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import rss_rl
from rss_rl.api.options import ModelFolder, Texts, TrustPlugins, Typed, Which
from rss_rl.api.terminal import SafeConsole, busy
from rss_rl.errors import StorageError


def explain(
    run: ModelFolder,
    texts: Texts,
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
