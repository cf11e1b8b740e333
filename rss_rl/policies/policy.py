"""What a selection policy is: a torch module that returns a distribution over selections.

    def forward(self, inputs: PolicyInputs) -> SelectionDistribution

One that draws a single bit for both roles of a token has the attribute `bits_per_token = 1`.

A policy is in training mode only where its learner computes gradients, and in evaluation mode
everywhere else: when selections are drawn for rewards, when a split is scored or shown, and in a
loaded model. So dropout affects gradients but never selections. For selections of an older policy,
importance ratios compare the two.

A sentence must get the same distribution alone and in a padded batch.

Legend: B sentences, N tokens, E embedding size, H size of a state, F features that are read of a
token, R = 1 or 2 bits that are drawn for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from rss_rl.policies.distributions import SelectionDistribution
from rss_rl.types import ROLES


@dataclass(frozen=True)
class PolicySetup:
    """What a policy is built from, besides its options.

    features    F, of `PolicyInputs.features`
    activation  `relu` or `elu`, that of the classifier
    words       word of each token id, 0 = padding; empty where there is no vocabulary
    """

    features: int
    activation: str
    words: Sequence[str] = ()


class PolicyInputs(NamedTuple):
    """What a policy reads of B sentences; nothing has a gradient.

    vectors  [B, N, E], word vectors; with `policy.reads: example`, and features of the example's
             other sentence, see `cross_features`
    valid    bool [B, N], True = real token
    tokens   int64 [B, N], ids of words, 0 = padding
    ends     bool [B, N], True = the last token of a sentence
    states   [B, N, H], of a pretrained encoder with `policy.reads: contextual`, else None
    """

    vectors: Tensor
    valid: Tensor
    tokens: Tensor
    ends: Tensor
    states: Tensor | None = None

    @property
    def features(self) -> Tensor:
        """Vectors and states of each token, [B, N, F]."""
        return self.vectors if self.states is None else torch.cat([self.vectors, self.states], -1)


class Policy(nn.Module):
    """The type of a policy that the runtime uses; a policy need not inherit from it."""

    if TYPE_CHECKING:

        def __call__(self, inputs: PolicyInputs) -> SelectionDistribution:
            """See the module."""


def bits_per_token(policy: object) -> int:
    """R, the bits that the policy draws for a token: by default one for each role."""
    return int(getattr(policy, "bits_per_token", ROLES))


def missing_attributes(candidate: object, protocol: type) -> list[str]:
    """Methods and attributes of a protocol that an object lacks, sorted."""
    names = {
        name
        for parent in protocol.__mro__
        if parent not in (object, Protocol)
        for name in (*vars(parent), *getattr(parent, "__annotations__", {}))
        if not name.startswith("_")
    }
    return sorted(name for name in names if not hasattr(candidate, name))
