"""Selections from a linear-chain CRF with two states: neighbouring bits are coupled.

    p(z) ~ exp(sum_i unary_i z_i + pull sum_i [z_i = z_{i+1}])

over the real tokens of a sentence, which come first. With the message to bit i from the bits
after it, as log-odds,

    later_i = phi(unary_{i+1} + later_{i+1}),    phi(s) = log (1 + e^(pull + s)) / (e^pull + e^s)

and `earlier` likewise from those before it, the marginal logit is unary + earlier + later, and the
logit given the preceding bit a is unary + later + pull (2 a - 1). Both recurrences are products of
2 x 2 matrices, and sampling composes functions of one bit: all are associative, so a parallel scan
takes log2 N steps over whole tensors (Hillis and Steele 1986) instead of N.

Legend: K samples, B sentences, R roles, N tokens.
Source: Lafferty, McCallum and Pereira, ICML 2001; for sampling, Scott, JASA 2002 (filtering
backward and sampling forward; the paper has it the other way round).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rss_rl.ops.bernoulli import bit_entropy


class Chain(NamedTuple):
    """A distribution over the bits of sentences.

    marginal  logits of the bits, [B, R, N]; meaningless on padding
    first     logits without the preceding bit's contribution, [B, R, N]
    pull      nats by which equal neighbours are favoured, [R, 1]
    """

    marginal: Tensor
    first: Tensor
    pull: Tensor

    @classmethod
    def of(cls, unary: Tensor, pull: Tensor, valid: Tensor) -> Chain:
        """The chain with exact marginals, summed over all selections.

        Args:
            unary: [B, R, N]. pull: [R, 1]. valid: bool [B, N], True first.
        """
        if unary.ndim != 3 or pull.shape != (unary.shape[1], 1):
            raise ValueError(f"unary {tuple(unary.shape)}, pull {tuple(pull.shape)}")
        later = _messages(unary, pull, valid)
        earlier = _messages(unary.flip(-1), pull, valid.flip(-1)).flip(-1)
        return cls(unary + earlier + later, unary + later, pull)


def _messages(unary: Tensor, pull: Tensor, valid: Tensor) -> Tensor:
    """Message to each bit from all bits after it, log-odds [B, R, N]; 0 if there are none."""
    tokens = unary.shape[-1]
    if tokens < 2:
        return torch.zeros_like(unary)
    # Message from bit i to the one before it, log-weights [B, R, N, 2 before, 2 own]. Padding sends
    # none: all weights are equal.
    score = torch.stack([torch.zeros_like(unary), unary], -1)[..., None, :]
    alike = (torch.eye(2, dtype=unary.dtype, device=unary.device) * pull[..., None])[:, None]
    products = (score + alike) * valid[:, None, :, None, None]
    reach = 1
    while reach < tokens:
        behind = F.pad(products[:, :, reach:], (0, 0, 0, 0, 0, reach))  # past the end: equal
        left, right = products[..., :, :, None], behind[..., None, :, :]
        products = torch.logaddexp(
            left[..., 0, :] + right[..., 0, :], left[..., 1, :] + right[..., 1, :]
        )
        reach *= 2
    sums = torch.logsumexp(products, -1)  # [B, R, N, 2]
    return F.pad(sums[..., 1:, 1] - sums[..., 1:, 0], (0, 1))


def _spread(chain: Chain) -> Tensor:
    """What the preceding bit adds if 1 and subtracts if 0, [R, N]; 0 for the first token."""
    tokens = chain.first.shape[-1]
    behind = torch.arange(tokens, device=chain.pull.device) > 0
    return chain.pull * behind


def conditional_logits(chain: Chain, bits: Tensor) -> Tensor:
    """Logits of each bit given those before it, [K, B, R, N], as are `bits`.

    Their log-probs add up to that of the whole selection.
    """
    before = F.pad(bits[..., :-1], (1, 0))
    return chain.first + torch.where(before, _spread(chain), -_spread(chain))


def draw(chain: Chain, uniforms: Tensor, valid: Tensor) -> Tensor:
    """Selections, bool [K, B, R, N]: bit i is 1 where u_i is below its chance given those before.

    Args:
        uniforms: [K, B, R, N] in (0, 1). valid: bool [B, N].
    """
    if uniforms.ndim != 4 or uniforms.shape[1:] != chain.first.shape:
        raise ValueError(
            f"uniforms {tuple(uniforms.shape)} do not fit a chain {tuple(chain.first.shape)}"
        )
    # Each bit as a function of the one before it, then of ever earlier ones, until it depends on
    # none: both values are then equal, so the value assumed before the first token is irrelevant.
    after_0 = uniforms < torch.sigmoid(chain.first - _spread(chain))
    after_1 = uniforms < torch.sigmoid(chain.first + _spread(chain))
    reach = 1
    while reach < uniforms.shape[-1]:
        before_0 = F.pad(after_0[..., :-reach], (reach, 0))
        before_1 = F.pad(after_1[..., :-reach], (reach, 0))
        after_0, after_1 = (
            torch.where(before, after_1, after_0) for before in (before_0, before_1)
        )
        reach *= 2
    return after_0 & valid[:, None]


def entropy(chain: Chain, valid: Tensor) -> Tensor:
    """Joint entropy of the bits in nats, divided by their number, [B]; 0 for an empty sentence.

    H = sum_i E[H(z_i | z_{i-1})], exact.
    """
    chance = torch.sigmoid(chain.marginal)
    before = F.pad(chance[..., :-1], (1, 0))
    spread = _spread(chain)
    after_1, after_0 = bit_entropy(chain.first + spread), bit_entropy(chain.first - spread)
    by_token = before * after_1 + (1 - before) * after_0
    bits = (valid.sum(-1) * chain.first.shape[1]).clamp_min(1)
    return (by_token * valid[:, None]).sum((-1, -2)) / bits
