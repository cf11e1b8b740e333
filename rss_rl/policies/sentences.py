"""Selection of whole sentences by any policy: one bit for all tokens of a sentence.

The inner policy reads one vector for each sentence, the mean of its tokens' inputs, and selects
sentences as it would select tokens. All tokens of a sentence get its bit, so log-prob, entropy and
gradient are those of the inner policy, and a selection that splits a sentence has probability 0.
The log-prob of a sentence is at its first token.

Sentences end as in `rss_rl.ops.sentence_ends`, whatever the tokenizer.

Legend: K samples, B texts, N tokens, U sentences of the longest text, E input features of a token,
R = 1 or 2 bits that are drawn for a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from rss_rl.errors import ConfigError
from rss_rl.policies.adapters import PolicyModule
from rss_rl.policies.ends import KnowsEnds
from rss_rl.policies.protocol import (
    Evaluated,
    RelaxedPolicy,
    Sampled,
    bits_per_token,
    reads_ends,
)


class _Sentences(NamedTuple):
    """The sentences of a batch.

    vectors [B, U, E] means of their tokens. valid bool [B, U]
    of      int64 [B, N], the sentence of each token
    first   int64 [B, U], the first token of each. starts bool [B, N], the same by token
    """

    vectors: Tensor
    valid: Tensor
    of: Tensor
    first: Tensor
    starts: Tensor

    def spread(self, values: Tensor) -> Tensor:
        """Values of sentences [..., B, R, U] as values of their tokens, [..., B, R, N]."""
        return values.gather(-1, self.of[:, None].expand(*values.shape[:-1], -1))

    def at_first(self, values: Tensor) -> Tensor:
        """Values of tokens [..., B, R, N] at first tokens, [..., B, R, U]."""
        return values.gather(-1, self.first[:, None].expand(*values.shape[:-1], -1))


def _sentences(embedded: Tensor, valid: Tensor) -> _Sentences:
    """The sentences of [B, N, E + 1], whose last feature is 1 at the end of a sentence, else 0."""
    ends = (embedded[..., -1] > 0) & valid
    before = torch.cat([torch.ones_like(ends[:, :1]), ends[:, :-1]], 1)
    starts = before & valid
    number = starts.cumsum(1)  # [B, N], from 1
    most = max(starts.sum(1).tolist(), default=0) or min(1, valid.shape[1])
    numbers = torch.arange(1, most + 1, device=valid.device)[:, None]  # [U, 1]
    member = (number[:, None] == numbers) & valid[:, None]  # [B, U, N]
    sizes = member.sum(-1)  # [B, U]
    total = member.to(embedded.dtype) @ embedded[..., :-1]  # [B, U, E]
    first = (number[:, None] < numbers).sum(-1).clamp_max(valid.shape[1] - 1)
    vectors = total / sizes.clamp_min(1)[..., None]
    return _Sentences(vectors, sizes > 0, (number - 1).clamp_min(0), first, starts)


class SentencePolicy(KnowsEnds):
    """A `StochasticPolicy` of whole sentences.

    Args:
        inner: with log-probs; reads vectors of sentences in place of tokens.
        words: word of each token id.

    Raises:
        ConfigError: there is no vocabulary to look words up in, or the inner policy reads ends of
            sentences itself.
    """

    def __init__(self, inner: PolicyModule, words: Sequence[str]) -> None:
        super().__init__(words, "policy.unit", "word")
        if reads_ends(inner):
            raise ConfigError(
                "the policy is told where sentences end, and is asked to select whole ones",
                where="policy.unit",
                remedy="Set policy.unit=word, or policy.options.within=text",
            )
        self.inner = inner
        self.bits_per_token = bits_per_token(inner)

    def sample(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
        """See `StochasticPolicy`; a sentence uses the uniform number of its first token."""
        text = _sentences(embedded, valid)
        drawn = self.inner.sample(text.vectors, text.valid, text.at_first(uniforms))
        selection = text.spread(drawn.selection) & valid[:, None]
        return Sampled(selection, _placed(text, drawn.log_prob))

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`."""
        text = _sentences(embedded, valid)
        chosen = text.at_first(selection) & text.valid[:, None]
        found = self.inner.evaluate(text.vectors, text.valid, chosen)
        parted = (text.spread(chosen) != selection) & valid[:, None]
        log_prob = _placed(text, found.log_prob).masked_fill(parted, -torch.inf)
        return Evaluated(log_prob, found.entropy)

    def probabilities(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        text = _sentences(embedded, valid)
        chances = self.inner.probabilities(text.vectors, text.valid)
        return text.spread(chances) * valid[:, None]

    def threshold(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `StochasticPolicy`."""
        text = _sentences(embedded, valid)
        return text.spread(self.inner.threshold(text.vectors, text.valid)) & valid[:, None]


class RelaxedSentencePolicy(SentencePolicy):
    """The same for a policy with gates."""

    def gates(self, embedded: Tensor, valid: Tensor, uniforms: Tensor) -> Tensor:
        """See `RelaxedPolicy`."""
        text = _sentences(embedded, valid)
        inner = cast(RelaxedPolicy, self.inner)
        gates = inner.gates(text.vectors, text.valid, text.at_first(uniforms))
        return text.spread(gates) * valid[:, None]


def _placed(text: _Sentences, log_prob: Tensor) -> Tensor:
    """[K, B, 2, U] at the first token of each sentence, [K, B, 2, N]."""
    return text.spread(log_prob).where(text.starts[:, None], 0.0)


def by_sentence(policy: PolicyModule, words: Sequence[str]) -> PolicyModule:
    """The policy, selecting whole sentences.

    Raises:
        ConfigError: see `SentencePolicy`.
    """
    kind = RelaxedSentencePolicy if isinstance(policy, RelaxedPolicy) else SentencePolicy
    return cast(PolicyModule, kind(policy, words))
