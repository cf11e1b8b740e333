"""What a selection policy is: a torch module that returns a distribution over selections.

    def forward(self, embedded: Tensor, valid: Tensor) -> SelectionDistribution

It reads the embedded tokens, float [B, N, E], detached: it never changes the classifier's
embeddings. With `policy.reads: example` they include features of the example's other sentence, and
E, which is `PolicySetup.inputs`, is larger. valid is bool [B, N], True = real token. A policy with
the attribute `reads_ends = True` is told where sentences end, see `ReadsEnds`. One that draws a
single bit for both roles of a token has the attribute `bits_per_token = 1`.

A policy is in training mode only where its learner computes gradients, and in evaluation mode
everywhere else: when selections are drawn for rewards, when a split is scored or shown, and in a
loaded model. So dropout affects gradients but never selections. For selections of an older policy,
importance ratios compare the two.

A sentence must get the same distribution alone and in a padded batch.

Legend: B sentences, N tokens, E embedding size, R = 1 or 2 bits that are drawn for a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn

from rss_rl.policies.distributions import SelectionDistribution
from rss_rl.types import ROLES


@dataclass(frozen=True)
class PolicySetup:
    """What a policy is built from, besides its options.

    inputs      E, input features of a token: the size of the embeddings, or more
    activation  `relu` or `elu`, that of the classifier
    words       word of each token id, 0 = padding; empty where there is no vocabulary
    label_weights  those of the features that are label weights; none where words have none
    """

    inputs: int
    activation: str
    words: Sequence[str] = ()
    label_weights: slice | None = None


class Policy(nn.Module):
    """The type of a policy that the runtime uses; a policy need not inherit from it."""

    if TYPE_CHECKING:

        def __call__(self, embedded: Tensor, valid: Tensor) -> SelectionDistribution:
            """See the module."""


class ReadsEnds(Protocol):
    """A policy with the attribute `reads_ends = True`.

    What it reads has one feature more than `PolicySetup.inputs`, the last: 1 where a sentence ends,
    else 0.
    """

    def ends(self, tokens: Tensor) -> Tensor:
        """Whether a sentence ends with a token of int64 [B, N], bool [B, N]."""


def reads_ends(policy: object) -> bool:
    """Whether the policy is a `ReadsEnds`."""
    return bool(getattr(policy, "reads_ends", False))


def bits_per_token(policy: object) -> int:
    """R, the bits that the policy draws for a token: by default one for each role."""
    return int(getattr(policy, "bits_per_token", ROLES))


def missing_attributes(found: object, protocol: type) -> list[str]:
    """Methods and attributes of a protocol that an object lacks, sorted."""
    names = {
        name
        for parent in protocol.__mro__
        if parent not in (object, Protocol)
        for name in (*vars(parent), *getattr(parent, "__annotations__", {}))
        if not name.startswith("_")
    }
    return sorted(name for name in names if not hasattr(found, name))
