"""Show which words of a text a trained model selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rss_rl
from rss_rl.api.options import ModelFolder, Texts, TrustPlugins, Which

if TYPE_CHECKING:
    from rss_rl.inference.explanation import Explanation


def select(
    run: ModelFolder,
    texts: Texts,
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
