"""The same distribution as RSS, learnt through its gates by the straight-through estimator.

Sources: Jang, Gu and Poole 2017 and Maddison, Mnih and Teh 2017 (Gumbel-softmax); Bengio et al.
2013 (straight-through).
"""

from __future__ import annotations

from rss_rl.components import Component
from rss_rl.policies.rss import RSSOptions, RSSPolicy

GUMBEL = Component(
    kind="policy",
    name="gumbel",
    help="Independent bits, learnt through straight-through gates from the classifier's loss.",
    build=RSSPolicy,
    options=RSSOptions,
    capabilities=frozenset({"learns", "log_probs", "logits", "gates", "gates_first", "share"}),
    source="Jang, Gu and Poole, ICLR 2017; Maddison, Mnih and Teh, ICLR 2017",
)
