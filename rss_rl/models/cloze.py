"""Cloze reading: which candidate of a passage fills the blank of a question.

    h_i = bi-GRU(passage),  j = [forward j_l; backward j_1] of a bi-GRU of its own over the question
    alpha = softmax over i of  j W_s h_i                                           Stanford Reader
                           or  sum_k eta_ik,  eta = bi-GRU(gamma),  gamma_i = j * (W_s h_i)
                                                                              Sequential Attention
    o = sum_i alpha_i h_i

Dropout is on the input of each GRU. W_s and the output start from U(-0.01, 0.01), GRUs from
N(0, 0.1^2).

Legend: M examples, N_s tokens of slot s, C candidates of the example with the most, H hidden size
of a direction, E embedding size.
Source: Brarda, Yeres and Bowman, Sequential Attention (2017); Chen, Bolton and Manning (2016).
"""

from __future__ import annotations

__all__ = ["CLOZE", "BilinearAttention", "ClozeReader", "SequentialAttention", "initial_gru"]

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component, Options
from rss_rl.errors import DataError
from rss_rl.models.classifier import Classifier, ClassifierSetup
from rss_rl.models.dropout import Dropout
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.encoders.recurrent import Bidirectional, both_ends
from rss_rl.models.heads import ClassTask
from rss_rl.ops.masking import gather, kept_indices, masked_softmax
from rss_rl.ops.ragged import group_counts, group_sums, present_groups

FLOOR = 1e-6
"""Added to each candidate's attention, so that one whose words were removed has a probability."""

_BOUND = 0.01


class Evidence(NamedTuple):
    """What a reader extracts from a batch.

    summary  o, [M, 2 H]
    weights  alpha of the kept tokens, [M, L]
    marks    int64 [M, L], their candidates
    present  bool [M, C], which candidates an example has
    """

    summary: Tensor
    weights: Tensor
    marks: Tensor
    present: Tensor


Answering = Callable[[Evidence], Tensor]
"""Scores of the candidates, [M, C]; meaningless where a candidate is absent."""


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

    def forward(self, evidence: Evidence) -> Tensor:
        """See `Answering`.

        Raises:
            DataError: an example has more candidates than there are rows.
        """
        count = evidence.present.shape[1]
        if count > len(self.weight):
            raise DataError(
                f"an example has {count} candidates, the model {len(self.weight)}",
                where="model.classifier.options.entities",
                remedy="Raise it to that number, or choose another output",
            )
        return (evidence.summary @ self.weight[:count].T).to(evidence.summary.dtype)


class PointerOutput(nn.Module):
    """log of the total attention on a candidate's tokens; it has no parameters."""

    def forward(self, evidence: Evidence) -> Tensor:
        """See `Answering`."""
        return (group_sums(evidence.weights, evidence.marks, evidence.present) + FLOOR).log()


_SPREAD = 0.1


PassageAttention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""h [M, N, 2 H], j [M, 2 H] and bool [M, N] to logits [M, N] of each token as the answer."""


def initial_gru(inputs: int, hidden: int) -> Bidirectional:
    """A bi-GRU with weights from N(0, 0.1^2) and zero biases, as in the paper's section 4."""
    gru = Bidirectional(nn.GRU, inputs, hidden)
    for matrix in gru.matrices():
        nn.init.normal_(matrix, std=_SPREAD)
    return gru


def _read(gru: Bidirectional, values: Tensor, valid: Tensor) -> Tensor:
    """The bi-GRU over [M, N, D]: [M, N, 2 H] in the precision of its weights."""
    # In lower precision a recurrence would accumulate rounding errors over the tokens.
    with torch.autocast(values.device.type, enabled=False):
        return gru(values.to(gru.matrices()[0].dtype), valid)  # type: ignore[no-any-return]


class BilinearAttention(nn.Module):
    """j W_s h_i: the Stanford Reader."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = small_uniform(size, size)

    def forward(self, passage: Tensor, query: Tensor, valid: Tensor) -> Tensor:
        """See `PassageAttention`."""
        turned = (query @ self.weight).to(passage.dtype)  # [M, 2 H]: once, not for each token
        return (passage * turned[:, None]).sum(-1)


class SequentialAttention(nn.Module):
    """Sums over the features of eta = bi-GRU(j * (W_s h_i))."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.weight = small_uniform(size, size)
        self.dropout = Dropout(dropout)
        self.gru = initial_gru(size, size // 2)

    def forward(self, passage: Tensor, query: Tensor, valid: Tensor) -> Tensor:
        """See `PassageAttention`."""
        gamma = query[:, None] * F.linear(passage, self.weight).to(passage.dtype)
        return _read(self.gru, self.dropout(gamma), valid).sum(-1)


class ClozeReader(Classifier):
    """A passage (slot 0, marked with candidates), a question (slot 1) and selections to logits.

    Unselected words are removed from both before anything reads them; the list of candidates is
    given with the question and stays.

    Args:
        attention, output: how the passage is attended to, and candidates are scored.
        hidden: H. dropout: on the input of each GRU.
    """

    def __init__(
        self, embedding: WordEmbedding, attention: PassageAttention, output: Answering,
        *, hidden: int, dropout: float,
    ) -> None:  # fmt: skip
        super().__init__(embedding, ClassTask())
        self.dropout = Dropout(dropout)
        self.passage = initial_gru(embedding.size, hidden)
        self.question = initial_gru(embedding.size, hidden)
        self.attention = attention
        self.output = output

    def forward(
        self,
        tokens: Sequence[Tensor],
        valid: Sequence[Tensor],
        selections: Sequence[Tensor] | None = None,
        marks: Tensor | None = None,
    ) -> Tensor:
        """Logits [M, C], minus infinity where an example has no such candidate.

        Args:
            tokens: 2 x int64 [M, N_s]. valid: 2 x bool [M, N_s].
            selections: 2 x bool [M, 2, N_s]; None selects every token.
            marks: int64 [M, N_0], candidate that each passage token is, see `Batch`.

        Raises:
            ValueError: no marks. DataError: more candidates than the output supports.
        """
        if marks is None:
            raise ValueError("cloze reading needs marks: the candidate number of each token")
        selected = valid
        if selections is not None:
            selected = [v & s.any(1) for v, s in zip(valid, selections, strict=True)]
        marks = torch.where(valid[0], marks, -1)
        present = present_groups(group_counts(marks))  # [M, C]
        words, read, index = _kept(tokens[0], selected[0])
        query_words, known, _ = _kept(tokens[1], selected[1])
        passage = _read(self.passage, self.dropout(self.embedding(words)), read)  # [M, N, 2 H]
        question = _read(self.question, self.dropout(self.embedding(query_words)), known)
        logits = self.attention(passage, both_ends(question, known), read)
        weights = masked_softmax(logits[..., None], read)  # [M, N, 1]
        evidence = Evidence(
            (weights * passage).sum(1),
            weights[..., 0],
            torch.where(read, gather(marks, index), -1),
            present,
        )
        return torch.where(present, self.output(evidence), float("-inf"))


def _kept(tokens: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Kept tokens moved to the front, their mask, and their positions; each [M, L]."""
    gathered = kept_indices(keep)
    words = torch.where(gathered.kept, gather(tokens, gathered.index), 0)
    return words, gathered.kept, gathered.index


class _ClozeOptions(Options):
    attention: Literal["stanford", "sequential"] = "sequential"
    """Attention to the passage: a bilinear form, or a GRU over products."""
    hidden: int = Field(default=128, ge=1)
    """Hidden size of each direction of the GRUs."""
    output: Literal["entities", "pointer"] = "pointer"
    """Score of a candidate. entities: by a weight row of its number (the papers, for anonymous
    entities); pointer: by the attention on it.
    """
    entities: int = Field(default=600, ge=1)
    """Candidate numbers that output=entities has rows for."""


def _build(setup: ClassifierSetup, options: _ClozeOptions) -> ClozeReader:
    size = 2 * options.hidden
    attention = (
        BilinearAttention(size)
        if options.attention == "stanford"
        else SequentialAttention(size, setup.dropout)
    )
    outputs: Mapping[str, Callable[[], Answering]] = {
        "entities": lambda: EntityOutput(size, options.entities),
        "pointer": PointerOutput,
    }
    return ClozeReader(
        setup.embedding,
        attention,
        outputs[options.output](),
        hidden=options.hidden,
        dropout=setup.dropout,
    )


CLOZE = Component(
    kind="classifier",
    name="cloze",
    help="Which candidate of a passage fills the blank of a question; it reads without an encoder.",
    build=_build,
    options=_ClozeOptions,
    capabilities=frozenset({"candidate"}),
    source="Brarda et al., 2017; Chen et al., ACL 2016; Kadlec et al., ACL 2016",
)
