"""RSS, reinforced sequence sampling: independent bits for all tokens in parallel.

Legend: K samples, B sentences, N tokens, E embedding size, D hidden, R modules; role 0 = head,
1 = dependent.
Sources: Shen et al., Reinforced Self-Attention Network (IJCAI 2018), section 3.1. The policy
`gumbel` is the same distribution, learnt through its gates: Jang, Gu and Poole 2017 and Maddison,
Mnih and Teh 2017 (Gumbel-softmax); Bengio et al. 2013 (straight-through).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component, Options
from rss_rl.models.encoders.convolution import GatedConvolutions
from rss_rl.models.encoders.encoder import TokenEncoder
from rss_rl.models.encoders.pooled import NoContext
from rss_rl.models.encoders.recurrent import RecurrentContext
from rss_rl.models.layers import activation_function, glorot_linear
from rss_rl.ops.bernoulli import even_logits, log_odds
from rss_rl.ops.masking import masked_mean
from rss_rl.ops.packing import joined
from rss_rl.policies.distributions import IndependentBits
from rss_rl.policies.policy import PolicyInputs, PolicySetup
from rss_rl.types import ROLES

Context = Literal["none", "lstm", "gru", "conv"]
Pool = Literal["mean", "none"]
_CONVOLUTIONS, _WINDOW = 2, 5
"""Layers of context=conv and the window of each: a receptive field of nine tokens."""
_GAIN = 60.0
"""Of the logit of an even share: Adam moves one parameter by its rate, and a share takes nats."""


class RSSModule(nn.Module):
    """Logit of selecting each token: w . sigma(W [x_i; pool; x_i * pool] + b_R) + b.

    pool is the mean over the real tokens of the sentence; without one W reads only x_i. With a
    context layer x_i is its output.

    Args:
        inputs: E. hidden: D, also of the context layer (of each direction of a recurrent one).
        initial_probability: sigmoid(b) at the start; the paper's zero bias is 0.5.
        context: layer below all this: `none` (the paper), a bidirectional `lstm` or `gru`, or
            `conv`, gated convolutions.
        pool: `mean` (the paper), or `none`: a module that reads single words.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        activation: str,
        initial_probability: float,
        context: Context = "none",
        pool: Pool = "mean",
    ) -> None:
        super().__init__()
        self.context = _context_layer(context, inputs, hidden)
        size = self.context.output_size
        self.reads_pool = pool != "none"
        self.hidden = glorot_linear(3 * size if self.reads_pool else size, hidden)
        self.score = glorot_linear(hidden, 1)
        nn.init.constant_(self.score.bias, log_odds(initial_probability))
        self.activation = activation

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """[B, N, E] and bool [B, N] to logits [B, N]."""
        tokens = self.context(embedded, valid)
        if not self.reads_pool:
            features = activation_function(self.activation)(self.hidden(tokens))  # [B, N, D]
            return self.score(features)[..., 0]  # type: ignore[no-any-return]
        return _logits([self], tokens, valid)[:, 0]

    @property
    def reads_mean_alone(self) -> bool:
        """Whether it reads only tokens and their mean, so that such modules can be fused."""
        return self.reads_pool and isinstance(self.context, NoContext)


class RSSModules(nn.ModuleList):
    """RSS modules of one size, activation and context, computed at once where they can be."""

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """[B, N, E] and bool [B, N] to logits [B, R, N], R modules."""
        modules = cast(list[RSSModule], list(self))
        if not all(module.reads_mean_alone for module in modules):
            return torch.stack([module(embedded, valid) for module in modules], 1)
        return _logits(modules, embedded, valid)


def _logits(modules: Sequence[RSSModule], tokens: Tensor, valid: Tensor) -> Tensor:
    """Logits [B, R, N] of R modules of one size and activation, which read the tokens' mean."""
    pool = masked_mean(tokens, valid)  # [B, E]
    # [x_i; pool; x_i * pool] is never materialised: it is three times as large as the tokens, and
    # the pool's term is the same for all of them.
    hidden = joined([module.hidden.weight for module in modules])
    bias = joined([module.hidden.bias for module in modules])
    of_token, of_pool, of_product = hidden.chunk(3, 1)  # [R D, E] each
    flat, product = tokens.flatten(0, 1), (tokens * pool[:, None]).flatten(0, 1)
    features = F.linear(flat, of_token) + F.linear(product, of_product)
    features = features.view(*tokens.shape[:2], len(hidden))
    features = features + F.linear(pool, of_pool, bias)[:, None]
    features = activation_function(modules[0].activation)(features)  # [B, N, R D]
    parts = zip(modules, features.chunk(len(modules), -1), strict=True)
    return joined([module.score(part) for module, part in parts], -1).transpose(1, 2)


def _context_layer(context: Context, inputs: int, hidden: int) -> TokenEncoder:
    """Equation 5 of the paper: 'a context fusion layer, e.g. Bi-LSTM, Bi-GRU'."""
    if context == "none":
        return NoContext(inputs)
    if context == "conv":
        return GatedConvolutions(inputs, hidden, layers=_CONVOLUTIONS, window=_WINDOW, dropout=0.0)
    cell = {"lstm": nn.LSTM, "gru": nn.GRU}[context]
    return RecurrentContext(cell, inputs, hidden, dropout=0.0)


class RSSPolicy(nn.Module):
    """Two untied RSS modules for heads and dependents, or one for both roles.

    A module for both roles decides them with one bit per token (the paper's 'w/o dependency
    restricted'); its log-prob counts that bit once.
    """

    def __init__(self, setup: PolicySetup, options: RSSOptions) -> None:
        super().__init__()
        self._temperature = options.temperature
        self.modules_by_role = options.modules(setup, options.initial_probability)
        self.bits_per_token = options.roles
        start = torch.full((options.roles,), log_odds(options.initial_probability) / _GAIN)
        self.share = nn.Parameter(start) if options.even else None

    def forward(self, inputs: PolicyInputs) -> IndependentBits:
        """See `rss_rl.policies.policy`."""
        logits: Tensor = self.modules_by_role(inputs.features, inputs.valid)  # [B, R, N]
        if self.share is not None:
            logits = even_logits(logits, inputs.valid, (_GAIN * self.share).sigmoid())
        return IndependentBits(logits, inputs.valid, self._temperature)


class SelectorOptions(Options):
    """Options of policies that score tokens by RSS modules."""

    hidden: int = Field(default=300, ge=1)
    """Hidden size D, also of each direction of the context layer."""
    shared: bool = False
    """One module for both roles, heads and dependents ('w/o dependency restricted')."""
    context: Context = "none"
    """A layer below the policy that adds each token's context: bidirectional and recurrent, or two
    gated convolutions, which cost a fraction of that.
    """
    pool: Pool = "mean"
    """Summary of the sentence that each token reads. mean: of its tokens; with label weights it is
    a verdict on the sentence, which kept words may then plead for rather than decide. none: each
    word is judged by itself, and no sentence can be memorised.
    """

    def modules(
        self, setup: PolicySetup, initial_probability: float = 0.5, *, by_role: int = 1
    ) -> RSSModules:
        """Fresh modules for a setup, `by_role` of them for each role."""
        sizes = setup.features, self.hidden, setup.activation, initial_probability
        reads = self.context, self.pool
        count = by_role * self.roles
        return RSSModules(RSSModule(*sizes, *reads) for _ in range(count))

    @property
    def roles(self) -> int:
        """R, bits that are drawn for a token."""
        return 1 if self.shared else ROLES


class BitsOptions(SelectorOptions):
    """Options of independent bits."""

    initial_probability: float = Field(default=0.5, gt=0, lt=1)
    """Initial probability of selecting a token."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of the gates' gradient, for pathwise learning."""


class RSSOptions(BitsOptions):
    """Options of bits with logits of their own."""

    even: bool = False
    """Keep the same share of every sentence, in expectation. Otherwise a policy that can tell the
    label may say it by how much it keeps.
    """


RSS = Component(
    kind="policy",
    name="rss",
    help="Reinforced sequence sampling: independent bits for all tokens in parallel.",
    build=RSSPolicy,
    options=RSSOptions,
    capabilities=frozenset({"learns", "log_probs", "gates", "share"}),
    source="Shen et al., Reinforced Self-Attention Network, IJCAI 2018, section 3.1",
)

GUMBEL = Component(
    kind="policy",
    name="gumbel",
    help="Independent bits, learnt through straight-through gates from the classifier's loss.",
    build=RSSPolicy,
    options=RSSOptions,
    capabilities=frozenset({"learns", "log_probs", "gates", "gates_first", "share"}),
    source="Jang, Gu and Poole, ICLR 2017; Maddison, Mnih and Teh, ICLR 2017",
)
