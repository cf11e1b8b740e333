"""A linear-chain CRF over the bits of each role: selections are runs of words.

Equal neighbouring bits are favoured by a score that is learnt or fixed. Log-prob, entropy and
marginals are exact, see `rss_rl.ops.chains`.

Legend: K samples, B sentences, N tokens, R = 1 or 2 roles with modules of their own.
Source: Lafferty, McCallum and Pereira, ICML 2001. For rationales, Lei, Barzilay and Jaakkola, EMNLP
2016, encourage runs by a cost instead.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component
from rss_rl.ops import bernoulli
from rss_rl.ops.chains import Chain, conditional_logits, draw, entropy
from rss_rl.ops.relaxed import straight_through
from rss_rl.policies.memo import once
from rss_rl.policies.protocol import Evaluated, PolicySetup, Sampled
from rss_rl.policies.rss import SelectorOptions
from rss_rl.types import HEAD, ROLES


class CRFOptions(SelectorOptions):
    """Options of chains of bits."""

    initial_probability: float = Field(
        default=0.5, gt=0, lt=1, description="Initial probability of keeping a lone token."
    )
    pull: float = Field(
        default=2.0,
        description="Nats by which two equal neighbours are likelier than two that differ, at the"
        " start.",
    )
    temperature: float = Field(
        default=1.0, gt=0, description="Temperature of the gates' gradient, for pathwise learning."
    )
    learns_pull: bool = Field(default=True, description="Whether pull is learnt, or fixed.")


class CRFPolicy(nn.Module):
    """Stochastic, with bits that depend on each other along the text."""

    def __init__(self, setup: PolicySetup, options: CRFOptions) -> None:
        super().__init__()
        self._temperature = options.temperature
        self.modules_by_role = options.modules(setup, options.initial_probability)
        self.bits_per_token = options.roles
        pull = torch.full((options.roles, 1), options.pull)
        if options.learns_pull:
            self.pull = nn.Parameter(pull)
        else:
            self.register_buffer("pull", pull)

    def _marginal(self, embedded: Tensor, valid: Tensor) -> Tensor:
        return once(self, lambda *given: self._chain(*given).marginal, embedded, valid)

    def _chain(self, embedded: Tensor, valid: Tensor) -> Chain:
        return Chain.of(self.modules_by_role(embedded, valid), self.pull, valid)

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """See `StochasticPolicy`."""
        chain = self._chain(embedded, valid)
        bits = draw(chain, uniforms[:, :, : chain.first.shape[1]], valid)
        log_prob = bernoulli.log_prob(conditional_logits(chain, bits), bits, valid)
        return Sampled(bits.expand(-1, -1, ROLES, -1), bernoulli.both_roles(log_prob))

    def gates(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Tensor:
        """The same bits as `sample`, straight through each bit's chance given those before it.

        The gradient ignores the effect of a bit on the bits after it. See `RelaxedPolicy`.
        """
        chain = self._chain(embedded, valid)
        drawn = uniforms[:, :, : chain.first.shape[1]]
        logits = conditional_logits(chain, draw(chain, drawn, valid))  # [K, B, R, N]
        return straight_through(logits, valid, drawn, self._temperature).expand(-1, -1, ROLES, -1)

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`."""
        chain = self._chain(embedded, valid)
        bits = selection[:, :, HEAD : HEAD + chain.first.shape[1]]
        log_prob = bernoulli.log_prob(conditional_logits(chain, bits), bits, valid)
        return Evaluated(bernoulli.both_roles(log_prob), entropy(chain, valid))

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Marginals; see `StochasticPolicy`."""
        chance = torch.sigmoid(self._marginal(embedded, valid)) * valid[:, None]
        return chance.expand(-1, ROLES, -1)

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """Tokens with a marginal over one half; see `StochasticPolicy`."""
        return self.probabilities(embedded, valid) > 0.5


CRF = Component(
    kind="policy",
    name="crf",
    help="A chain of bits in which equal neighbours are favoured: selections are runs of words.",
    build=CRFPolicy,
    options=CRFOptions,
    capabilities=frozenset({"learns", "log_probs", "gates", "share"}),
    source="Lafferty, McCallum and Pereira, ICML 2001",
)
