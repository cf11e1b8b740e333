"""Distributions over selections, which policies return, after `torch.distributions`.

Legend: K samples, B sentences, N tokens, R = 1 or 2 bits that are drawn for a token; role 0 = head,
1 = dependent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from rss_rl.ops import bernoulli
from rss_rl.ops.relaxed import straight_through
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import HEAD, ROLES, Array

_DECIMALS = 5


class Sampled(NamedTuple):
    """selection bool [K, B, 2, N], False on padding; log_prob [K, B, 2, N] of its bits.

    The log-prob is 0 on padding, and its sum over role and token is that of the selection. If bits
    are drawn in sequence, it is that of each bit given the bits before it; if one bit is drawn for
    both roles, it is the head's.
    """

    selection: Tensor
    log_prob: Tensor


class Evaluated(NamedTuple):
    """log_prob [K, B, 2, N] of selections; entropy [B], mean over the bits, in nats.

    If bits are drawn in sequence, the entropy is that of each bit given the bits before it,
    averaged over these selections; its gradient ignores how those were drawn.
    """

    log_prob: Tensor
    entropy: Tensor


class SelectionDistribution:
    """Selections of B sentences; a derived class defines what it can do.

    All randomness comes from `uniforms`, float [K, B, 2, N] in (0, 1): equal ones give equal
    selections.

    has_log_probs  whether there is `evaluate`, for policy updates that learn from rewards
    has_rsample    whether there is `rsample`, for policy updates that learn through gates
    """

    has_log_probs: ClassVar[bool] = True
    has_rsample: bool = False

    @property
    def probs(self) -> Tensor:
        """Probability that a token is selected, [B, 2, N], differentiable; 0 on padding.

        If bits are drawn in sequence, that given the bits of `mode` before it. Costs are charged on
        it where a target share steers the policy, and where it learns through gates.
        """
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The deterministic selection used at test time, bool [B, 2, N]; False on padding."""
        return self.steered > 0.5

    @property
    def steered(self) -> Tensor:
        """Numbers in [0, 1], over one half where `mode` keeps a token, [B, 2, N]; `probs`.

        For a target share. Where they are others, `probs` must increase with them.
        """
        return self.probs

    def sample(self, uniforms: Tensor) -> Sampled:
        """K selections of each sentence."""
        raise NotImplementedError

    def evaluate(self, selection: Tensor) -> Evaluated:
        """Log-prob of the bits of `selection` bool [K, B, 2, N], and entropy, differentiable."""
        raise NotImplementedError

    def rsample(self, uniforms: Tensor) -> Tensor:
        """Differentiable gates in [0, 1], [K, B, 2, N]; 0 on padding.

        The reward model multiplies its attention by them. A token is selected unless its gate is
        exactly 0.
        """
        raise NotImplementedError


class IndependentBits(SelectionDistribution):
    """Bits drawn as `uniform < sigmoid(logit)`.

    Args:
        logits: [B, R, N]; R = 1 where both roles share a bit. valid: bool [B, N].
        temperature: of the gates' gradient, see `straight_through`; None: there are no gates.
    """

    def __init__(self, logits: Tensor, valid: Tensor, temperature: float | None = None) -> None:
        self.logits, self.valid = bernoulli.never_on_padding(logits, valid), valid
        self._chances = torch.sigmoid(self.logits)
        self._temperature = temperature
        self.has_rsample = temperature is not None

    @property
    def probs(self) -> Tensor:
        """See `SelectionDistribution`."""
        return self._chances.expand(-1, ROLES, -1)

    def sample(self, uniforms: Tensor) -> Sampled:
        """See `SelectionDistribution`."""
        bits = self._drawn_bits(uniforms) < self._chances
        log_prob = bernoulli.log_prob(self.logits, bits)
        return Sampled(bits.expand(-1, -1, ROLES, -1), bernoulli.both_roles(log_prob))

    def evaluate(self, selection: Tensor) -> Evaluated:
        """See `SelectionDistribution`."""
        log_prob = bernoulli.log_prob(self.logits, self._drawn_bits(selection))
        entropy = bernoulli.entropy(self.logits, self._chances, self.valid)
        return Evaluated(bernoulli.both_roles(log_prob), entropy)

    def rsample(self, uniforms: Tensor) -> Tensor:
        """The same bits as `sample`, by the straight-through estimator."""
        assert self._temperature is not None
        gates = straight_through(
            self.logits, self.valid, self._drawn_bits(uniforms), self._temperature
        )
        return gates.expand(-1, -1, ROLES, -1)

    def _drawn_bits(self, values: Tensor) -> Tensor:
        """Those of the bits that are drawn, [K, B, 2, N] to [K, B, R, N]."""
        return values[:, :, HEAD : HEAD + self.logits.shape[1]]


class Certain(SelectionDistribution):
    """One selection, bool [B, 2, N], with probability 1; there is nothing to learn."""

    def __init__(self, selection: Tensor, valid: Tensor) -> None:
        self._selection, self.valid = selection & valid[:, None], valid

    @property
    def probs(self) -> Tensor:
        """See `SelectionDistribution`; 0 or 1."""
        return self._selection.float()

    @property
    def mode(self) -> Tensor:
        """See `SelectionDistribution`."""
        return self._selection

    def sample(self, uniforms: Tensor) -> Sampled:
        """See `SelectionDistribution`."""
        return Sampled(self._selection.expand(uniforms.shape), uniforms.new_zeros(uniforms.shape))

    def evaluate(self, selection: Tensor) -> Evaluated:
        """See `SelectionDistribution`; any other selection is impossible."""
        other = (selection != self._selection) & self.valid[:, None]
        log_prob = other.float().masked_fill(other, -math.inf)
        return Evaluated(log_prob, log_prob.new_zeros(len(self.valid)))


class Gates(SelectionDistribution):
    """Base class of one without log-probs: its selections are the gates that are not 0."""

    has_log_probs = False
    has_rsample = True

    def sample(self, uniforms: Tensor) -> Sampled:
        """See `SelectionDistribution`; the log-prob is unknown and returned as 0."""
        gates = self.rsample(uniforms)
        return Sampled(gates > 0, gates.new_zeros(gates.shape))


def word_scores(probs: Tensor) -> Array:
    """The greater of each word's probabilities [B, 2, N] as head and as dependent, float64 [B, N].

    A policy without context scores repeated words equally: rounding keeps float noise from ordering
    them.
    """
    return probs.amax(1).double().cpu().numpy().round(_DECIMALS)


def selection_uniforms(
    seed: int,
    update: int,
    rows: Array,
    widths: Sequence[int],
    selections: int,
    device: torch.device,
    *,
    antithetic: bool = False,
) -> list[Tensor]:
    """The uniform numbers that selections of an update are drawn from, S x [K, B, 2, N_s].

    They depend only on update and row, so samplers and learners get the same ones.

    Args:
        seed: of the run. rows: int64 [B]. widths: N_s of each slot. selections: K.
        antithetic: the second half of the K are 1 - u, where the first half are u.
    """
    drawn = selections // 2 if antithetic else selections
    uniforms = []
    for slot, width in enumerate(widths):
        key = stream_key(seed, "selection", update, slot)
        numbers = torch.from_numpy(keyed_uniforms(key, rows, drawn, ROLES, width)).to(device)
        uniforms.append(torch.cat([numbers, 1 - numbers]) if antithetic else numbers)
    return uniforms
