"""The interfaces of selection policies: deterministic, stochastic, factorised, relaxed.

A policy is a torch module with at least one of these sets of methods; they can be combined. The
runtime adds what follows from them (`adapt`): a policy that only thresholds becomes a distribution
with one certain selection, one with only `logits` gets all other methods of independent bits. A
relaxed one learns through its gates, a stochastic one from rewards. When it is built, a policy is
compared with what its component declares.

A policy reads the embedded tokens, float [B, N, E], detached: it never changes the classifier's
embeddings. With `policy.reads: example` they include features of the example's other sentence, and
E, which is `PolicySetup.inputs`, is larger. A policy with the attribute `reads_ends = True` is told
where sentences end, see `ReadsEnds`. One that draws a single bit for both roles of a token has the
attribute `bits_per_token = 1`.

A policy is in training mode only where its learner calls `evaluate`, `logits` or `gates`, and in
evaluation mode everywhere else: when selections are drawn for rewards, when a split is scored or
shown, and in a loaded model. So dropout affects gradients but never selections. For selections of
an older policy, importance ratios compare the two.

All randomness comes from `uniforms`, so equal arguments give equal selections, whoever calls. A
sentence must get the same selection alone and in a padded batch.

Legend: K samples, B sentences, N tokens, E embedding size, R = 1 or 2 bits that are drawn for a
token; role 0 = head, 1 = dependent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from rss_rl.types import ROLES


@dataclass(frozen=True)
class PolicySetup:
    """What a policy is built from, besides its options.

    inputs      E, input features of a token: the size of the embeddings, or more
    activation  `relu` or `elu`, that of the classifier
    words       word of each token id, 0 = padding; empty where there is no vocabulary
    """

    inputs: int
    activation: str
    words: Sequence[str] = ()


class Sampled(NamedTuple):
    """selection bool [K, B, 2, N], False on padding; log_prob [K, B, 2, N] of its bits.

    The log-prob is 0 on padding, and its sum over role and token is that of the selection. If bits
    are drawn in sequence, it is that of each bit given the bits before it; if one bit is drawn for
    both roles, it is the head's.
    """

    selection: Tensor
    log_prob: Tensor


class Evaluated(NamedTuple):
    """log_prob [K, B, 2, N] of given selections; entropy [B], mean over the bits, in nats.

    If bits are drawn in sequence, the entropy is that of each bit given the bits before it,
    averaged over the given selections; its gradient ignores how those were drawn.
    """

    log_prob: Tensor
    entropy: Tensor


@runtime_checkable
class DeterministicPolicy(Protocol):
    """Decides which tokens are kept: the minimum for a policy, and all that inference needs."""

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """The deterministic selection used at test time, bool [B, 2, N]; False on padding."""


@runtime_checkable
class StochasticPolicy(DeterministicPolicy, Protocol):
    """A distribution over selections with its log-prob: for score-function estimators."""

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """K selections of each sentence; embedded [B, N, E], uniforms [K, B, 2, N] in (0, 1)."""

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """Log-prob of the bits of `selection` [K, B, 2, N] and entropy, both differentiable."""

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Probability of selection of each token and role, [B, 2, N]; 0 on padding.

        If bits are drawn in sequence, that given the thresholded bits before it. For a target
        share, `threshold` must keep what is over one half, or follow `SteeredPolicy`: a run with
        another rule is refused.
        """


@runtime_checkable
class FactorisedPolicy(StochasticPolicy, Protocol):
    """Independent bits: for estimators that weight each bit.

    A bit is drawn as `uniform < sigmoid(logit)`.
    """

    def logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Differentiable logits of the bits, [B, R, N]; R = 1 where both roles share a bit."""


@runtime_checkable
class RelaxedPolicy(DeterministicPolicy, Protocol):
    """Gates by which the reward model multiplies its attention: for pathwise gradients.

    A token is selected unless its gate is exactly 0.
    """

    def gates(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Tensor:
        """Differentiable gates in [0, 1], [K, B, 2, N]; 0 on padding. Arguments as of `sample`."""

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Differentiable probability that a gate is not 0, [B, 2, N]; 0 on padding.

        The sparsity cost and the coherence cost are charged on it.
        """


@runtime_checkable
class SteeredPolicy(Protocol):
    """A policy whose threshold follows another rule than one half, for use with a target share."""

    def steered(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Numbers in [0, 1], over one half where `threshold` keeps a token, [B, 2, N].

        The target share's cost is on `probabilities`, which must increase with them.
        """


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
