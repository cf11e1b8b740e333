"""Smooth masks: each token has a height and a width, so that neighbouring tokens are kept together.

    logit_i = b + m + sum_j (height_j - m) g((i - j) / width_j) / sqrt(width_j sqrt(pi))

over the tokens j of the text, or of the sentence that i is in, with g(x) = exp(-x^2 / 2) and m the
mean height of the sentence: many bumps overlap at each token, so without it a common change of
all heights would move the logits several times as far, and no target share would settle.
Heights are scores of an RSS module for each role, and a role has one learnt width. Bits are
independent given the logits, which change slowly along the text, as people mark phrases, not words.

A bump's energy, the sum of its squares, depends on its height but not on its width, so independent
heights give sums of the same size. Bumps are cut off beyond three widths, and at the ends of parts.

Legend: K samples, B sentences, N tokens, R = 1 or 2 roles with modules of their own,
W positions that a bump reaches.
Sources: Brinner and Zarriess, Findings of ACL 2023 (MaRC) and EMNLP 2024 (RTP).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component
from rss_rl.errors import ConfigError
from rss_rl.ops.bernoulli import log_odds
from rss_rl.ops.masking import masked_mean
from rss_rl.ops.ragged import sentence_numbers
from rss_rl.policies.distributions import IndependentBits
from rss_rl.policies.policy import PolicyInputs, PolicySetup
from rss_rl.policies.rss import BitsOptions

_LEAST_WIDTH, _LARGEST_WIDTH = 0.5, 16.0
"""Of a bump, in tokens."""


class SmoothOptions(BitsOptions):
    """Options of smooth masks."""

    width: float = Field(default=1.5, gt=_LEAST_WIDTH, lt=_LARGEST_WIDTH)
    """Initial width of every bump, in tokens."""
    within: Literal["text", "sentence"] = "text"
    """What a bump reaches over: its whole text, or its sentence."""


class SmoothPolicy(nn.Module):
    """Independent bits with logits that are sums of bumps.

    Raises:
        ConfigError: bumps end with their sentence, and there is no vocabulary to look up the words
            that end one.
    """

    def __init__(self, setup: PolicySetup, options: SmoothOptions) -> None:
        super().__init__()
        self._by_sentence = options.within == "sentence"
        if self._by_sentence and not setup.words:
            raise ConfigError(
                "it looks for the words that end a sentence, and the words of the token ids are not"
                " known",
                where="policy.options.within",
                remedy="Use it with prepared data, or set policy.options.within=text",
            )
        self._temperature = options.temperature
        self.bits_per_token = options.roles
        self.heights = options.modules(setup)
        start = (options.width - _LEAST_WIDTH) / (_LARGEST_WIDTH - _LEAST_WIDTH)
        shape = options.roles, 1
        self.bias = nn.Parameter(torch.full(shape, log_odds(options.initial_probability)))
        self.width = nn.Parameter(torch.full(shape, log_odds(start)))

    def forward(self, inputs: PolicyInputs) -> IndependentBits:
        """See `rss_rl.policies.policy`."""
        valid = inputs.valid
        sentence = sentence_numbers(inputs.ends) if self._by_sentence else None
        heights = self.heights(inputs.features, valid)  # [B, R, N]
        mean = masked_mean(heights.transpose(1, 2), valid)[..., None]  # [B, R, 1]
        chosen = torch.sigmoid(self.width).expand_as(heights)
        widths = _LEAST_WIDTH + (_LARGEST_WIDTH - _LEAST_WIDTH) * chosen
        centred = (heights - mean) * valid[:, None]
        logits = self.bias + mean + bumps(centred, widths, _LARGEST_WIDTH, sentence)
        return IndependentBits(logits, valid, self._temperature)


SMOOTH = Component(
    kind="policy",
    name="smooth",
    help="Independent bits whose logits are sums of bumps, with a height for each token.",
    build=SmoothPolicy,
    options=SmoothOptions,
    capabilities=frozenset({"learns", "log_probs", "gates", "gates_first", "share"}),
    source="Brinner and Zarriess, Findings of ACL 2023 and EMNLP 2024",
)


REACH = 3.0
"""Widths to either side that a bump is summed over; it has fallen to 1% there."""


def bumps(heights: Tensor, widths: Tensor, largest: float, part: Tensor | None = None) -> Tensor:
    """The sum of the bumps at each token.

    Args:
        heights: [B, R, N], 0 where there is no bump, as on padding.
        widths: [B, R, N], tokens, in (0, largest].
        largest: upper bound of the widths; decides how far bumps are summed.
        part: int64 [B, N], the part of the sequence that each token is in, from 0; a bump reaches
            over its own part. None: over the whole sequence.

    Returns:
        [B, R, N].
    """
    if not heights.shape[-1]:
        return heights
    reach = math.ceil(REACH * largest)
    distance = torch.arange(-reach, reach + 1, device=heights.device, dtype=heights.dtype)  # [W]
    scaled = heights / (widths * math.sqrt(math.pi)).sqrt()
    sharpness = -0.5 / widths.square()
    # The W tokens around each one, [B, R, N, W]: views, nothing is copied.
    near = F.pad(scaled, (reach, reach)).unfold(-1, 2 * reach + 1, 1)
    sharp = F.pad(sharpness, (reach, reach)).unfold(-1, 2 * reach + 1, 1)
    bells = torch.exp(sharp * distance.square())
    if part is not None:
        others = F.pad(part, (reach, reach), value=-1).unfold(-1, 2 * reach + 1, 1)
        bells = bells * (others == part[..., None])[:, None]
    return (near * bells).sum(-1)
