"""Answer-sentence selection: which sentence of a passage answers a question.

    s_k = Dense(encoder(sentence k))           q = Dense(r(question)), r source2token
    f_k = [s_k; q; s_k - q; s_k * q]           g = context fusion over f_1 .. f_m
    p(k) = softmax over k of w^T Dense(g_k)

Legend: M examples, N_s tokens of slot s, R sentences of all passages, L tokens of the longest of
them, m sentences of the longest passage, D hidden.
Source: Shen et al., Bi-BloSAN (ICLR 2018), appendix B. With D = E = 100 this reading of its figure
gives the published numbers of parameters (Bi-LSTM .71 M, Bi-GRU .57 M, multi-head .45 M). A
pretrained transformer reads the question too: r is then the encoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rss_rl.components import Component, Options
from rss_rl.models.classifier import Classifier, ClassifierSetup
from rss_rl.models.dropout import keyed_dropout, packed_rows, part_keys
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.encoders.encoder import (
    Encoder,
    PackedEncoder,
    TokenEncoder,
    WordEncoder,
)
from rss_rl.models.heads import ClassTask, entailment_features
from rss_rl.models.layers import Dense, Source2Token, glorot_linear
from rss_rl.ops.masking import gather, kept_indices
from rss_rl.ops.packing import Packed
from rss_rl.ops.ragged import Grouped, group_counts, padded_groups, present_groups, regroup

_LIMITS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
"""Sentences are encoded in groups bounded by these lengths: one long sentence would otherwise pad
all others, and pairs of tokens grow with the square of the length."""


class PassageClassifier(Classifier):
    """A passage (slot 0, marked with sentences), a question (slot 1) and selections to logits.

    Unselected words are removed from passage and question before anything reads them, except from
    the passage if the encoder reads them; a sentence without words keeps its number. A word of the
    question is kept if it is selected in either role.

    Args:
        encoder: of sentences. context: over sentences, reading 4 D features.
        hidden: D. head_hidden: of the last Dense. activation, dropout: of each Dense.
    """

    def __init__(
        self, embedding: WordEmbedding, encoder: Encoder, context: TokenEncoder,
        *, hidden: int, head_hidden: int, activation: str, dropout: float,
    ) -> None:  # fmt: skip
        super().__init__(embedding, ClassTask())
        self.encoder = encoder
        self.sentence = Dense(encoder.output_size, hidden, activation, dropout)
        pool = None
        if not isinstance(encoder, WordEncoder):
            pool = Source2Token(embedding.size, activation, dropout)
        self.question_pool = pool
        size = encoder.output_size if pool is None else embedding.size
        self.question = Dense(size, hidden, activation, dropout)
        self.context = context
        self.dense = Dense(context.output_size, head_hidden, activation, dropout)
        self.output = glorot_linear(head_hidden, 1)

    def forward(
        self,
        tokens: Sequence[Tensor],
        valid: Sequence[Tensor],
        selections: Sequence[Tensor] | None = None,
        marks: Tensor | None = None,
    ) -> Tensor:
        """Logits [M, m], minus infinity where a passage has no such sentence.

        Args:
            tokens: 2 x int64 [M, N_s]. valid: 2 x bool [M, N_s].
            selections: 2 x bool [M, 2, N_s]; None selects every token in both roles.
            marks: int64 [M, N_0], sentence number of each passage token, see `Batch`.

        Raises:
            ValueError: no marks.
        """
        if marks is None:
            raise ValueError("a passage needs marks: the sentence number of each token")
        if selections is None:
            selections = [mask[:, None].expand(-1, 2, -1) for mask in valid]
        query = self._question(tokens[1], valid[1], selections[1])  # [M, D]
        marks = torch.where(valid[0], marks, -1)
        counts = group_counts(marks)
        present = present_groups(counts)  # [M, m]
        read = valid[0] if self.encoder.reads_unselected else valid[0] & selections[0].any(1)
        grouped = regroup(read, marks, counts)
        encoded = self._sentences(tokens[0], selections[0], grouped)  # [R, D]
        sentences = padded_groups(encoded, grouped, present)  # [M, m, D]
        features = entailment_features([sentences, query[:, None].expand_as(sentences)])
        fused = self.context(features, present)  # [M, m, ...]
        scores = self.output(self.dense(fused))[..., 0]
        return torch.where(present, scores, float("-inf"))

    def _question(self, tokens: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        if self.question_pool is None:
            return self.question(self.encoder(tokens, valid, selection))  # type: ignore[no-any-return]
        words = kept_indices(valid & selection.any(1))
        left = torch.where(words.kept, gather(tokens, words.index), 0)
        vector = self.question_pool(self.embedding(left), words.kept)
        return self.question(vector)  # type: ignore[no-any-return]

    def _sentences(self, tokens: Tensor, selection: Tensor, grouped: Grouped) -> Tensor:
        """Vectors of the sentences, [R, D]; padded ones are encoded in groups of similar length."""
        keys = part_keys(grouped.example, grouped.number)
        cells, bits = tokens.reshape(-1), selection.transpose(1, 2).reshape(-1, 2)
        encoder = self.encoder
        if isinstance(encoder, PackedEncoder):
            packed, cell = Packed.of([grouped.kept]), grouped.index[grouped.kept]
            with keyed_dropout(keys):
                with packed_rows(packed):
                    words = self.embedding.rows(cells[cell], once=not encoder.training)
                    encoded = encoder.packed(words, packed, bits[cell][None])
                return self.sentence(encoded)  # type: ignore[no-any-return]
        lengths = grouped.kept.sum(1)
        order = torch.argsort(lengths, stable=True)
        sizes = torch.bincount(torch.bucketize(lengths, lengths.new_tensor(_LIMITS)))
        vectors = []
        for rows in torch.split(order, [n for n in sizes.tolist() if n] or [0]):
            longest = int(lengths[rows[-1]]) if len(rows) else 0
            index, kept = grouped.index[rows, :longest], grouped.kept[rows, :longest]
            ids = torch.where(kept, cells[index], 0)
            inputs = ids if isinstance(encoder, WordEncoder) else self.embedding(ids)
            roles = bits[index].transpose(1, 2) & kept[:, None]
            with keyed_dropout(None if keys is None else keys[rows]):
                vectors.append(self.sentence(encoder(inputs, kept, roles)))
        return torch.cat(vectors)[torch.argsort(order)]


def _build(setup: ClassifierSetup, options: Options) -> PassageClassifier:
    return PassageClassifier(
        setup.embedding,
        setup.encoder(setup.embedding.size),
        setup.context(4 * setup.hidden),
        hidden=setup.hidden,
        head_hidden=setup.head_hidden,
        activation=setup.activation,
        dropout=setup.dropout,
    )


PASSAGE = Component(
    kind="classifier",
    name="passage",
    help="Which sentence of a passage answers a question.",
    build=_build,
    capabilities=frozenset({"sentence"}),
    source="Shen et al., Bi-BloSAN, ICLR 2018, appendix B",
)
