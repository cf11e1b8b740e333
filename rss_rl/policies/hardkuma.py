"""HardKuma: gates that are exactly 0 or 1 with some probability and between them otherwise.

    k ~ Kumaraswamy(a_i, b_i),  gate_i = min(1, max(0, 1.2 k - 0.1))

a_i and b_i are softplus of the scores of two RSS modules for each role.

Legend: K samples, B sentences, N tokens, R = 1 or 2 roles with modules of their own.
Source: Bastings, Aziz and Titov, Interpretable Neural Predictions with Differentiable Binary
Variables (ACL 2019).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component
from rss_rl.ops import bernoulli
from rss_rl.ops.relaxed import kuma_gates, kuma_log_tail
from rss_rl.policies.distributions import Evaluated, Sampled, SelectionDistribution
from rss_rl.policies.policy import PolicyInputs, PolicySetup
from rss_rl.policies.rss import RSSModule, SelectorOptions
from rss_rl.types import HEAD, ROLES

_LOW, _HIGH = -0.1, 1.1
"""Ends of the stretched gates."""
_ZERO, _ONE = -_LOW / (_HIGH - _LOW), (1 - _LOW) / (_HIGH - _LOW)
"""k where gates end."""
_SMALLEST, _LARGEST = 1e-3, 100.0
"""Bounds of a and b, within which P(gate = 0) and P(gate = 1) are not rounded to 0 or 1."""
_INITIAL_B = math.log(2.0)  # softplus(0), as published


class HardKumaOptions(SelectorOptions):
    """Options of stretched and clipped Kumaraswamy gates."""

    initial_probability: float = Field(default=0.5, gt=0, lt=1)
    """Initial probability of a nonzero gate, at score 0."""


class HardKumaGates(SelectionDistribution):
    """Gates, and the independent bits [gate > 0].

    Args:
        scores: [B, 2 R, N], of which a and b are softplus, by turns. valid: bool [B, N].
    """

    has_rsample = True

    def __init__(self, scores: Tensor, valid: Tensor) -> None:
        self._scores, self._valid = scores, valid

    def shape_parameters(self) -> tuple[Tensor, Tensor]:
        """a and b, [B, R, N] each."""
        positive = F.softplus(self._scores).clamp(_SMALLEST, _LARGEST)
        return positive[:, ::2], positive[:, 1::2]

    def rsample(self, uniforms: Tensor) -> Tensor:
        """See `SelectionDistribution`; the inverse of the distribution function at `uniforms`."""
        a, b = self.shape_parameters()
        gates = kuma_gates(a, b, uniforms[:, :, : a.shape[1]], _LOW, _HIGH)
        return (gates * self._valid[:, None]).expand(-1, -1, ROLES, -1)

    def _open_logits(self) -> Tensor:
        """Logits of P(gate > 0), [B, R, N]; not those of bits drawn as uniform < probability."""
        log_open = kuma_log_tail(*self.shape_parameters(), _ZERO)
        log_open = log_open.clamp_max(-torch.finfo(log_open.dtype).eps)
        logits = log_open - torch.log(-torch.expm1(log_open))
        return bernoulli.never_on_padding(logits, self._valid)

    def sample(self, uniforms: Tensor) -> Sampled:
        """See `SelectionDistribution`; the gates that are not 0."""
        selection = self.rsample(uniforms) > 0
        return Sampled(selection, self.evaluate(selection).log_prob)

    def evaluate(self, selection: Tensor) -> Evaluated:
        """See `SelectionDistribution`."""
        logits = self._open_logits()
        log_prob = bernoulli.log_prob(logits, selection[:, :, HEAD : logits.shape[1]])
        entropy = bernoulli.entropy(logits, torch.sigmoid(logits), self._valid)
        return Evaluated(bernoulli.both_roles(log_prob), entropy)

    @property
    def probs(self) -> Tensor:
        """P(gate > 0), whose sum is the expected L0 of the paper."""
        log_open = kuma_log_tail(*self.shape_parameters(), _ZERO)
        return (log_open.exp() * self._valid[:, None]).expand(-1, ROLES, -1)

    @property
    def steered(self) -> Tensor:
        """The likeliest kind of gate that is not 0, against 0: m / (m + P(gate = 0)) with m the
        larger of P(gate = 1) and P(0 < gate < 1).

        So `mode` keeps all tokens but those whose likeliest gate is 0. If a value between 0 and 1
        is likeliest, the paper takes the mean; here the token is selected.
        """
        a, b = self.shape_parameters()
        opened, full = (kuma_log_tail(a, b, x).exp() for x in (_ZERO, _ONE))
        likeliest = torch.maximum(full, opened - full)
        kept = likeliest / (likeliest + (1 - opened))
        return (kept * self._valid[:, None]).expand(-1, ROLES, -1)


class HardKumaPolicy(nn.Module):
    """Relaxed, and stochastic in the bits [gate > 0], which are independent."""

    def __init__(self, setup: PolicySetup, options: HardKumaOptions) -> None:
        super().__init__()
        self.modules_by_role = options.modules(setup, by_role=2)
        self.bits_per_token = options.roles
        closed = 1 - options.initial_probability ** (1 / _INITIAL_B)  # zero^a
        first = max(_SMALLEST, math.log(closed) / math.log(_ZERO))
        for module in self.modules_by_role[::2]:
            assert isinstance(module, RSSModule)
            nn.init.constant_(module.score.bias, math.log(math.expm1(first)))

    def forward(self, inputs: PolicyInputs) -> HardKumaGates:
        """See `rss_rl.policies.policy`."""
        return HardKumaGates(self.modules_by_role(inputs.features, inputs.valid), inputs.valid)


HARDKUMA = Component(
    kind="policy",
    name="hardkuma",
    help="Gates that are exactly 0 or 1 with some probability and between them otherwise.",
    build=HardKumaPolicy,
    options=HardKumaOptions,
    capabilities=frozenset({"learns", "log_probs", "gates", "gates_first", "share"}),
    source="Bastings, Aziz and Titov, ACL 2019",
)
