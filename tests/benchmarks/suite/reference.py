"""ReSAN's classifier as one writes it down: plain eager torch, to measure and to test ours by.

All pairs of tokens stand in one tensor [M, N, N, D], dropout is torch's, every row of the word
vectors gets a gradient. Parameters are named as ours are, so that state dicts fit.

Legend: M sentences, N tokens (j heads, i dependents), E embedding size, D hidden.
Source: Shen et al., ReSAN (IJCAI 2018), section 3.2, and its released program.
"""

from __future__ import annotations

__all__ = ["PlainReSAN"]

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_NEVER = -1e30


class _Dense(nn.Module):
    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.linear, self.rate = nn.Linear(inputs, outputs), dropout

    def forward(self, values: Tensor) -> Tensor:
        return F.elu(self.linear(F.dropout(values, self.rate, self.training)))


class _Direction(nn.Module):
    def __init__(self, inputs: int, hidden: int, dropout: float, *, back: bool) -> None:
        super().__init__()
        self.project = _Dense(inputs, hidden, dropout)
        self.dependent_score = nn.Linear(hidden, hidden, bias=False)
        self.head_score = nn.Linear(hidden, hidden, bias=False)
        self.gate_input, self.gate_context = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.score_bias = nn.Parameter(torch.zeros(hidden))
        self.gate_bias = nn.Parameter(torch.zeros(hidden))
        self.back = back

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        hidden, heads, dependents = self.project(embedded), selection[:, 0], selection[:, 1]
        place = torch.arange(valid.shape[1], device=valid.device)
        before = place[None, :] < place[:, None] if self.back else place[None, :] > place[:, None]
        allowed = before & heads[:, :, None] & dependents[:, None, :] & valid[:, None, :]
        logits = self.head_score(hidden)[:, :, None] + self.dependent_score(hidden)[:, None]
        logits = 5 * torch.tanh((logits + self.score_bias) / 5)  # [M, N, N, D]
        weights = torch.softmax(logits.masked_fill(~allowed[..., None], _NEVER), 2)
        attended = (weights * allowed[..., None] * hidden[:, None]).sum(2)
        seen = (before & valid[:, None, :]).to(hidden.dtype)  # what an unselected head averages
        mean = seen @ hidden / seen.sum(-1, keepdim=True).clamp_min(1)
        context = torch.where((heads & valid)[..., None], attended, mean)
        gate = torch.sigmoid(self.gate_input(hidden) + self.gate_context(context) + self.gate_bias)
        return gate * hidden + (1 - gate) * context


class _ReSA(nn.Module):
    def __init__(self, inputs: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.directions = nn.ModuleList(
            _Direction(inputs, hidden, dropout, back=back) for back in (True, False)
        )


class _Pool(nn.Module):
    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.hidden, self.score = _Dense(size, size, dropout), nn.Linear(size, size)

    def forward(self, values: Tensor, valid: Tensor) -> Tensor:
        scores = self.score(self.hidden(values)).masked_fill(~valid[..., None], _NEVER)
        return (torch.softmax(scores, 1) * values).sum(1)


class _Encoder(nn.Module):
    def __init__(self, inputs: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.resa, self.pool = _ReSA(inputs, hidden, dropout), _Pool(2 * hidden, dropout)

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        both = [direction(embedded, valid, selection) for direction in self.resa.directions]
        return self.pool(torch.cat(both, -1), valid)  # type: ignore[no-any-return]


class _Embedding(nn.Module):
    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.trainable = nn.Parameter(torch.randn(words, size))

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.trainable, padding_idx=0)


class _Highway(nn.Module):
    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.transform, self.gate = _Dense(size, size, dropout), nn.Linear(size, size)

    def forward(self, values: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(values))
        return gate * self.transform(values) + (1 - gate) * values


class _Head(nn.Module):
    def __init__(self, inputs: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dense, self.highway = _Dense(inputs, hidden, dropout), _Highway(hidden, dropout)
        self.output = nn.Linear(hidden, classes)

    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        features = torch.cat([one, two, one - two, one * two], -1)
        return self.output(self.highway(self.dense(features)))  # type: ignore[no-any-return]


class PlainReSAN(nn.Module):
    """Logits [M, classes] of sentence pairs, with ELU and a highway layer, c = 5.

    Args:
        words: rows of the word vectors, all of them trained.
    """

    def __init__(self, words: int, size: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.embedding = _Embedding(words, size)
        self.encoder = _Encoder(size, hidden, dropout)
        self.head = _Head(8 * hidden, hidden, classes, dropout)

    def forward(
        self,
        tokens: Sequence[Tensor],
        valid: Sequence[Tensor],
        selections: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """See `Classifier`."""
        if selections is None:
            selections = [mask[:, None].expand(-1, 2, -1) for mask in valid]
        one, two = (
            self.encoder(self.embedding(t), v, s)
            for t, v, s in zip(tokens, valid, selections, strict=True)
        )
        return self.head(one, two)  # type: ignore[no-any-return]
