"""Iterative sampling: each bit is drawn given the bits before it, the sequential baseline of RSS.

Legend: K samples, B sentences, R roles with a module of their own, N tokens, E embedding size,
D hidden, G gates of the cell.
Source: Shen et al., Reinforced Self-Attention Network (IJCAI 2018), appendix A, after Lei et al.,
Rationalizing Neural Predictions (EMNLP 2016).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component, Options
from rss_rl.models.layers import activation_function, glorot_blocks, glorot_linear
from rss_rl.ops import bernoulli
from rss_rl.policies.distributions import Evaluated, Sampled, SelectionDistribution
from rss_rl.policies.policy import PolicyInputs, PolicySetup
from rss_rl.types import HEAD, ROLES

Cell = Literal["rnn", "gru"]


class IterativeModule(nn.Module):
    """Parameters of one role: p_i = sigmoid(w . sigma(W [h_{i-1}; x_i] + b_R) + b).

    h_i is the state of a recurrent cell that has read [x_i; z_i]; h_0 = 0.

    Args:
        inputs: E. hidden: D.
        initial_probability: sigmoid(b) at the start.
        gates: G, matrices of the cell.
    """

    def __init__(self, inputs: int, hidden: int, initial_probability: float, gates: int) -> None:
        super().__init__()
        self.hidden = glorot_linear(hidden + inputs, hidden)
        self.score = glorot_linear(hidden, 1)
        nn.init.constant_(self.score.bias, bernoulli.log_odds(initial_probability))
        self.cell_input = glorot_linear(inputs + 1, gates * hidden)
        self.cell_state = glorot_linear(hidden, gates * hidden, bias=False)
        glorot_blocks(self.cell_input.weight, gates)
        glorot_blocks(self.cell_state.weight, gates)


class _Weights(NamedTuple):
    """Weights of all modules, stacked, so that one product serves both roles.

    seen    [R, 1, B, N, D + G D], terms of x_i in the hidden layer and in the cell, biases added
    bit     [R, 1, 1, G D], term of z_i in the cell
    state   [R, D, D + G D], for the product with h
    score   [R, D, 1] and its bias [R, 1, 1]
    """

    seen: Tensor
    bit: Tensor
    state: Tensor
    score: Tensor
    score_bias: Tensor


class IterativePolicy(nn.Module):
    """Bits in the order of the tokens, with two untied modules for heads and dependents.

    The terms of the tokens are computed for the whole sentence at once, and the recurrence is
    batched over selections and roles; only over tokens it is sequential. Padding comes last.
    """

    def __init__(self, setup: PolicySetup, options: IterativeOptions) -> None:
        super().__init__()
        gates, self._cell = _CELLS[options.cell]
        self.modules_by_role = nn.ModuleList(
            IterativeModule(setup.features, options.hidden, options.initial_probability, gates)
            for _ in range(1 if options.shared else 2)
        )
        self.bits_per_token = len(self.modules_by_role)
        self._size = options.hidden
        self._activation = activation_function(setup.activation)

    def forward(self, inputs: PolicyInputs) -> BitsInSequence:
        """See `rss_rl.policies.policy`."""
        return BitsInSequence(self, inputs.features, inputs.valid)

    def _weights(self, embedded: Tensor) -> _Weights:
        size, inputs = self._size, embedded.shape[-1]
        seen, bit, state, score = [], [], [], []
        bias: list[Tensor] = []
        for module in self.modules_by_role:
            assert isinstance(module, IterativeModule)
            token = torch.cat([module.hidden.weight[:, size:], module.cell_input.weight[:, :-1]])
            biases = torch.cat([module.hidden.bias, module.cell_input.bias])
            seen.append(F.linear(embedded, token, biases).to(embedded.dtype))
            bit.append(module.cell_input.weight[:, inputs])
            state.append(torch.cat([module.hidden.weight[:, :size], module.cell_state.weight]).T)
            score.append(module.score.weight.T)
            bias.append(module.score.bias)
        return _Weights(
            torch.stack(seen)[:, None],
            torch.stack(bit)[:, None, None],
            torch.stack(state),
            torch.stack(score),
            torch.stack(bias)[:, None],
        )

    def _score(self, hidden: Tensor, weights: _Weights) -> Tensor:
        """Logits [R, M] from the activation's inputs, [R, M, D]."""
        product = torch.bmm(self._activation(hidden), weights.score).to(hidden.dtype)
        return (product + weights.score_bias).squeeze(-1)

    def run(
        self,
        embedded: Tensor,
        valid: Tensor,
        samples: int,
        choose: Callable[[int, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Logits and bits [K, B, R, N]; `choose` gives the bit for a token and logit [R, K, B]."""
        weights, size = self._weights(embedded), self._size
        roles, (sentences, tokens) = len(self.modules_by_role), valid.shape
        state = embedded.new_zeros(roles, samples * sentences, size)
        logits, bits = [], []
        for i in range(tokens):
            seen = weights.seen[:, :, :, i]  # [R, 1, B, D + G D]
            product = torch.bmm(state, weights.state).to(state.dtype)
            product = product.view(roles, samples, sentences, product.shape[-1])
            hidden = product[..., :size] + seen[..., :size]
            logit = self._score(hidden.flatten(1, 2), weights).view(roles, samples, sentences)
            bit = choose(i, logit) & valid[:, i]
            read = seen[..., size:] + bit[..., None] * weights.bit
            state = self._cell(
                read.flatten(1, 2), product[..., size:].flatten(1, 2), state
            )  # [R, K B, D]
            logits.append(logit)
            bits.append(bit)
        if not tokens:
            empty = embedded.new_zeros(samples, sentences, roles, 0)
            return empty, empty.bool()
        return torch.stack(logits).permute(2, 3, 1, 0), torch.stack(bits).permute(2, 3, 1, 0)

    def logits(self, embedded: Tensor, bits: Tensor) -> Tensor:
        """Logits of given bits [K, B, R, N]: only the states are computed sequentially."""
        weights, size = self._weights(embedded), self._size
        samples, sentences, roles, tokens = bits.shape
        known = bits.permute(2, 0, 1, 3)[..., None]  # [R, K, B, N, 1]
        read = weights.seen[..., size:] + known * weights.bit[:, None]  # [R, K, B, N, G D]
        # Unbound once: the gradient of each index would be as large as the whole tensor.
        by_token = read.permute(3, 0, 1, 2, 4).flatten(2, 3).unbind(0)  # N x [R, K B, G D]
        recurrent = weights.state[..., size:]
        states = [embedded.new_zeros(roles, samples * sentences, size)]
        for token in by_token[:-1]:
            product = torch.bmm(states[-1], recurrent).to(embedded.dtype)
            states.append(self._cell(token, product, states[-1]))
        before = torch.stack(states[:tokens], 2) if tokens else embedded.new_zeros(0)
        before = before.reshape(roles, samples * sentences * tokens, size)
        product = torch.bmm(before, weights.state[..., :size]).to(embedded.dtype)
        hidden = product.view(roles, samples, sentences, tokens, size) + weights.seen[..., :size]
        logits = self._score(hidden.flatten(1, 3), weights)
        return logits.view(roles, samples, sentences, tokens).permute(1, 2, 0, 3)


class BitsInSequence(SelectionDistribution):
    """Each bit depends on the bits before it."""

    def __init__(self, policy: IterativePolicy, embedded: Tensor, valid: Tensor) -> None:
        self._policy, self._embedded, self._valid = policy, embedded, valid

    def sample(self, uniforms: Tensor) -> Sampled:
        """See `SelectionDistribution`."""
        drawn = uniforms[:, :, : self._policy.bits_per_token].permute(3, 2, 0, 1)  # [N, R, K, B]
        logits, bits = self._policy.run(
            *(self._embedded, self._valid, len(uniforms)),
            lambda i, logit: drawn[i] < torch.sigmoid(logit),
        )
        log_prob = bernoulli.log_prob(bernoulli.never_on_padding(logits, self._valid), bits)
        return Sampled(bits.expand(-1, -1, ROLES, -1), bernoulli.both_roles(log_prob))

    def evaluate(self, selection: Tensor) -> Evaluated:
        """See `SelectionDistribution`.

        The entropy of a bit is conditional on the bits before it in `selection`: its mean over
        selections drawn from the policy estimates the true one.
        """
        bits = selection[:, :, HEAD : HEAD + self._policy.bits_per_token]
        logits = self._policy.logits(self._embedded, bits)
        logits = bernoulli.never_on_padding(logits, self._valid)
        log_prob = bernoulli.log_prob(logits, bits)
        entropy = bernoulli.entropy(logits, torch.sigmoid(logits), self._valid).mean(0)
        return Evaluated(bernoulli.both_roles(log_prob), entropy)

    @property
    def probs(self) -> Tensor:
        """Probability of each bit given those of `mode` before it."""
        return (torch.sigmoid(self._greedy[0]) * self._valid[:, None]).expand(-1, ROLES, -1)

    @property
    def mode(self) -> Tensor:
        """Each token, in order, with probability over one half."""
        return self._greedy[1].expand(-1, ROLES, -1)

    @functools.cached_property
    def _greedy(self) -> tuple[Tensor, Tensor]:
        logits, bits = self._policy.run(self._embedded, self._valid, 1, lambda i, logit: logit > 0)
        return logits[0], bits[0]


def _rnn(read: Tensor, product: Tensor, state: Tensor) -> Tensor:
    """tanh(V [x; z] + b + U h)."""
    return torch.tanh(read + product)


def _gru(read: Tensor, product: Tensor, state: Tensor) -> Tensor:
    """h' = u * h + (1 - u) * c; r, u = sigmoid(V [x; z] + b + U h), c = tanh(V [x; z] + b + r U h).

    Source: Cho et al. 2014, the reset gate after the product so that one product serves all gates.
    """
    (read_r, read_u, read_c), (from_r, from_u, from_c) = read.chunk(3, -1), product.chunk(3, -1)
    candidate = torch.tanh(read_c + torch.sigmoid(read_r + from_r) * from_c)
    return torch.lerp(candidate, state, torch.sigmoid(read_u + from_u))


_CELLS: dict[Cell, tuple[int, Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "rnn": (1, _rnn),
    "gru": (3, _gru),
}


class IterativeOptions(Options):
    """Options of bits drawn in the order of the tokens."""

    hidden: int = Field(default=300, ge=1)
    """Hidden size D, also of the cell's state."""
    shared: bool = False
    """One module for both roles, heads and dependents."""
    cell: Cell = "rnn"
    """Recurrent cell over the bits drawn so far."""
    initial_probability: float = Field(default=0.5, gt=0, lt=1)
    """Initial probability of selecting a token."""


ITERATIVE = Component(
    kind="policy",
    name="iterative",
    help="Each bit is drawn given the bits before it: the sequential baseline.",
    build=IterativePolicy,
    options=IterativeOptions,
    capabilities=frozenset({"learns", "log_probs", "share"}),
    source="Shen et al., IJCAI 2018, appendix A; Lei, Barzilay and Jaakkola, EMNLP 2016",
)
