"""What a selection policy can be, by capability: deterministic, stochastic, factorised, relaxed.

A policy is a torch module with at least one of these sets of methods; several fit together. The
runtime works with what a policy offers (`adapt`): a policy that only thresholds is evaluated and
drawn from as a certain one, one with `logits` alone is given all else that independent bits have, a
relaxed one learns through its gates, a stochastic one from rewards. What a component declares and
what its policy has are compared when it is built.

A policy reads the embedded tokens, float [B, N, E]: detached, as a policy never changes the
classifier's embeddings. With `policy.reads: example` what it reads of a token also says what the
other sentence of the example has in common with it, and E is larger: a policy takes it from
`PolicySetup.inputs` and needs to know no more. One with the attribute `reads_tokens = True`, which
declares the capability `token_ids`, reads token ids, int64 [B, N], instead; `PolicySetup.words`
says which words they are. One that draws a single bit for both roles of a token says so with the
attribute `bits_per_token = 1`.

A policy is in training mode while it learns, which is in `evaluate`, `logits` or `gates` as its
learner calls them, and in evaluation mode everywhere else: where selections are drawn for rewards,
where a split is scored or shown, and in a model that was loaded. Dropout thus acts on what is
learnt and never on what is selected. Where an older policy drew, importance ratios compare the two.

All randomness comes in through `uniforms`, so equal arguments give equal selections, whoever calls.
A sentence must get the same alone and in a padded batch.

Legend: K samples, B sentences, N tokens, E embedding size, R = 1 or 2 bits that are drawn for a
token; role 0 = head, 1 = dependent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from rss_rl.ops.attention import KernelBackend
from rss_rl.types import ROLES


@dataclass(frozen=True)
class PolicySetup:
    """What a policy is built from, beside its options.

    inputs      E, numbers that are read of a token: the size of the embeddings, or more
    activation  `relu` or `elu`, that of the classifier
    words       word of each token id, 0 = padding; empty where there is no vocabulary
    backend     `compiled` where the run computes with kernels, see `model.attention`
    """

    inputs: int
    activation: str
    words: Sequence[str] = ()
    backend: KernelBackend = "eager"


class Sampled(NamedTuple):
    """selection bool [K, B, 2, N], False on padding; log_prob [K, B, 2, N] of its bits.

    The log-prob is 0 on padding, and its sum over role and token is that of the selection. A policy
    that draws bits in sequence gives that of each bit under the bits before it; one that draws a
    bit for both roles gives it to the head.
    """

    selection: Tensor
    log_prob: Tensor


class Evaluated(NamedTuple):
    """log_prob [K, B, 2, N] of given selections; entropy [B], mean over the bits, in nats.

    Where bits are drawn in sequence the entropy is that of each bit under the bits before it,
    averaged over the given selections; its gradient leaves out how those came to be drawn.
    """

    log_prob: Tensor
    entropy: Tensor


@runtime_checkable
class DeterministicPolicy(Protocol):
    """Says which tokens are kept: the least that a policy can do, and all that use needs."""

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

        Where bits are drawn in sequence, that after the thresholded bits before it. For a target
        share, `threshold` must keep what is over one half, or what `SteeredPolicy` says: a run with
        another rule is refused.
        """


@runtime_checkable
class FactorisedPolicy(StochasticPolicy, Protocol):
    """Independent bits: for estimators that weigh each bit.

    A bit is drawn as `uniform < sigmoid(logit)`.
    """

    def logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Differentiable logits of the bits, [B, R, N]; R = 1 where both roles share a bit."""


@runtime_checkable
class RelaxedPolicy(DeterministicPolicy, Protocol):
    """Gates that the reward model multiplies its attention with: for pathwise gradients.

    A gate of exactly 0 is a token that is not selected, any other is selected.
    """

    def gates(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Tensor:
        """Differentiable gates in [0, 1], [K, B, 2, N]; 0 on padding. Arguments as of `sample`."""

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Differentiable probability that a gate is not 0, [B, 2, N]; 0 on padding.

        The sparsity cost and the coherence cost are charged on it.
        """


@runtime_checkable
class SteeredPolicy(Protocol):
    """A policy with a threshold by another rule than one half, which a target share can steer."""

    def steered(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Numbers in [0, 1], over one half where `threshold` keeps a token, [B, 2, N].

        The share charges `probabilities`, which must rise with it.
        """


def reads_tokens(policy: object) -> bool:
    """Whether the policy reads token ids in place of embedded tokens."""
    return bool(getattr(policy, "reads_tokens", False))


def bits_per_token(policy: object) -> int:
    """R, the bits that the policy draws for a token: one for each role where it does not say."""
    return int(getattr(policy, "bits_per_token", ROLES))


def missing_attributes(found: object, protocol: type) -> list[str]:
    """What a protocol asks for, methods and attributes, and an object does not have, sorted."""
    names = {
        name
        for parent in protocol.__mro__
        if parent not in (object, Protocol)
        for name in (*vars(parent), *getattr(parent, "__annotations__", {}))
        if not name.startswith("_")
    }
    return sorted(name for name in names if not hasattr(found, name))
