"""Every token is selected: for warm-up, and the model without hard attention.

Legend: B sentences, N tokens.
"""

from __future__ import annotations

from torch import Tensor

from rss_rl.components import Component
from rss_rl.policies.adapters import CertainSelection


class SelectAllPolicy(CertainSelection):
    """Every token is head and dependent."""

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        return valid[:, None].expand(-1, 2, -1)


SELECT_ALL = Component(
    kind="policy",
    name="select-all",
    help="Every token is head and dependent.",
    build=lambda setup, options: SelectAllPolicy(),
    capabilities=frozenset({"log_probs"}),
)
