"""From what a reader saw to a score for each candidate.

    entities  w_c^T o with a row w_c for each candidate number (the papers)
    words     (W o)^T e_c with e_c the candidate's word vector, for open vocabularies
    pointer   log(sum of alpha_i over the candidate's tokens + 1e-6)  (Kadlec et al. 2016)

A candidate is given with the question: `words` reads its vector whether its tokens are selected or
not. Where every word of a passage is a candidate that shows the whole passage, if without its order
of words; with `entities` and `pointer` a score rests on the selected tokens alone.

Legend: M examples, L tokens left of a passage, C candidates, H hidden size of a direction, E
embedding size.
"""

from __future__ import annotations

__all__ = [
    "FLOOR",
    "Answering",
    "EntityOutput",
    "Evidence",
    "PointerOutput",
    "WordOutput",
    "small_uniform",
]

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from rss_rl.errors import DataError
from rss_rl.models.embedding import WordEmbedding
from rss_rl.ops.grouping import group_sums

FLOOR = 1e-6
"""Added to each candidate's attention, so that one whose words were removed keeps a probability."""

_BOUND = 0.01


class Evidence(NamedTuple):
    """What a reader saw of a batch.

    summary  o, [M, 2 H]
    weights  alpha of the tokens left, [M, L]
    marks    int64 [M, L], their candidates
    words    int64 [M, C], token id of each candidate, read before any token was removed
    present  bool [M, C], which candidates an example has
    """

    summary: Tensor
    weights: Tensor
    marks: Tensor
    words: Tensor
    present: Tensor


class Answering(Protocol):
    """A score for each candidate."""

    def __call__(self, evidence: Evidence, embedding: WordEmbedding) -> Tensor:
        """[M, C]; of no meaning where a candidate is absent."""


def small_uniform(rows: int, columns: int) -> nn.Parameter:
    """A weight matrix drawn from U(-0.01, 0.01)."""
    return nn.Parameter(torch.empty(rows, columns).uniform_(-_BOUND, _BOUND))


class EntityOutput(nn.Module):
    """w_c^T o, for candidates that are numbered by their first occurrence.

    Args:
        size: 2 H. entities: rows of W_a, one for each candidate number.
    """

    def __init__(self, size: int, entities: int) -> None:
        super().__init__()
        self.weight = small_uniform(entities, size)

    def forward(self, evidence: Evidence, embedding: WordEmbedding) -> Tensor:
        """See `Answering`.

        Raises:
            DataError: an example has more candidates than there are rows.
        """
        count = evidence.present.shape[1]
        if count > len(self.weight):
            raise DataError(
                f"an example has {count} candidates, the model {len(self.weight)}",
                where="model.classifier.options.entities",
                remedy="Give a number as large as that, or another output",
            )
        return (evidence.summary @ self.weight[:count].T).to(evidence.summary.dtype)


class WordOutput(nn.Module):
    """(W o)^T e_c."""

    def __init__(self, size: int, embedding_size: int) -> None:
        super().__init__()
        self.weight = small_uniform(embedding_size, size)

    def forward(self, evidence: Evidence, embedding: WordEmbedding) -> Tensor:
        """See `Answering`."""
        wanted = (evidence.summary @ self.weight.T).to(evidence.summary.dtype)  # [M, E]
        return (embedding(evidence.words) * wanted[:, None]).sum(-1)  # type: ignore[no-any-return]


class PointerOutput(nn.Module):
    """log of the attention that a candidate's tokens get together; it has no parameters."""

    def forward(self, evidence: Evidence, embedding: WordEmbedding) -> Tensor:
        """See `Answering`."""
        return (group_sums(evidence.weights, evidence.marks, evidence.present) + FLOOR).log()
