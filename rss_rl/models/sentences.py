"""The classifier of one or two sentences: embedding, shared sentence encoder, task head.

Legend: M examples (or B, of which there are M = K * B selections, sample-major), N_s tokens of
sentence slot s, L kept tokens of the fullest sentence, R of all sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from rss_rl.components import Component, Options
from rss_rl.models.classifier import Classifier, ClassifierSetup, Task
from rss_rl.models.dropout import keyed_dropout, packed_rows, slot_keys
from rss_rl.models.embedding import WordEmbedding, words_of
from rss_rl.models.encoders.encoder import (
    Encoder,
    GatedEncoder,
    PackedEncoder,
    WordEncoder,
)
from rss_rl.models.heads import (
    ClassTask,
    OfSentences,
    ScoreTask,
    SentencesHead,
    entailment_features,
    relatedness_features,
)
from rss_rl.ops.masking import gather, kept_indices
from rss_rl.ops.packing import Packed, joined
from rss_rl.types import LabelSpec


def remove_unselected(
    tokens: Tensor, valid: Tensor, selection: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Drop the tokens that are neither selected heads nor dependents, before anything reads them.

    Args:
        tokens: int64 [M, N]. valid: bool [M, N]. selection: bool [M, 2, N].

    Returns:
        Tokens [M, L], valid [M, L] and selection [M, 2, L], order kept.
    """
    union = kept_indices(selection.any(1) & valid)
    roles = gather(selection.transpose(1, 2), union.index).transpose(1, 2)
    return (
        torch.where(union.kept, gather(tokens, union.index), 0),
        union.kept,
        roles & union.kept[:, None],
    )


class SentencesClassifier(Classifier):
    """Tokens and selections to logits, losses and predictions.

    Args:
        encoder: shared by the sentences of an example.
    """

    shares_sentences = True
    """Takes several selections of each example."""

    def __init__(
        self, embedding: WordEmbedding, encoder: Encoder, head: OfSentences, task: Task
    ) -> None:
        super().__init__(embedding, task)
        self.encoder = encoder
        self.head = head
        self._reads_words = isinstance(encoder, WordEncoder)
        self._packs = isinstance(encoder, PackedEncoder)  # once: it takes as long as a small layer
        if self._reads_words:  # only the policy reads word vectors, and nothing trains them
            embedding.trainable.requires_grad_(False)

    @property
    def takes_gates(self) -> bool:
        """See `Classifier`."""
        return isinstance(self.encoder, GatedEncoder)

    def forward(
        self,
        tokens: Sequence[Tensor],
        valid: Sequence[Tensor],
        selections: Sequence[Tensor] | None = None,
        marks: Tensor | None = None,
    ) -> Tensor:
        """Logits [M, C].

        Args:
            tokens: S x int64 [B, N_s]. valid: S x bool [B, N_s].
            selections: S x bool [M, 2, N_s]; None selects every token in both roles. Where M is a
                multiple of B, what several selections of a sentence share is computed once, if
                the encoder can. Floats are gates in [0, 1], see `GatedEncoder`, one selection for
                each example.
            marks: unused, see `Batch`.
        """
        if selections is None:
            selections = [mask[:, None].expand(-1, 2, -1) for mask in valid]
        if self._packs and not selections[0].is_floating_point():
            packs = cast(PackedEncoder, self.encoder)
            return self.head(self._encode_packed(packs, tokens, valid, selections))
        keys, vectors = slot_keys(len(tokens)), []
        for slot, sentence in enumerate(zip(tokens, valid, selections, strict=True)):
            with keyed_dropout(None if keys is None else keys[slot]):
                vectors.append(self._encode(*sentence))
        return self.head(vectors)

    def _encode_packed(
        self,
        encoder: PackedEncoder,
        tokens: Sequence[Tensor],
        valid: Sequence[Tensor],
        selections: Sequence[Tensor],
    ) -> Sequence[Tensor]:
        """Vectors of the sentences of all slots at once, S x [M, output_size]."""
        times = max(1, len(selections[0]) // max(1, len(tokens[0])))
        shared = times > 1 and encoder.shares_rows
        if times > 1 and not shared:
            tokens, valid = ([t.repeat(times, 1) for t in each] for each in (tokens, valid))
            times = 1
        slots, examples = len(tokens), len(tokens[0])
        read = list(valid)
        if not encoder.reads_unselected:
            kept = (s.view(times, examples, *s.shape[1:]).any((0, 2)) for s in selections)
            read = [mask & union for mask, union in zip(valid, kept, strict=True)]
        ids = joined([slot[mask] for mask, slot in zip(read, tokens, strict=True)])  # [R]
        cells = (s.view(times, examples, *s.shape[1:]).transpose(2, 3) for s in selections)
        roles = joined([c[:, mask] for mask, c in zip(read, cells, strict=True)], 1)
        words = self.embedding.rows(ids, once=not encoder.training)
        keys, packed = slot_keys(slots), Packed.of(read)
        with keyed_dropout(None if keys is None else keys.view(-1)), packed_rows(packed):
            vectors = encoder.packed(words, packed, roles)
        by_slot = vectors.view(times, slots, examples, encoder.output_size).transpose(0, 1)
        return by_slot.flatten(1, 2).unbind()

    def _encode(self, tokens: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        if selection.is_floating_point():
            assert isinstance(self.encoder, GatedEncoder)
            return self.encoder.gated(self._looked_up(tokens), valid, selection)
        if selection.shape[0] > tokens.shape[0]:
            repeats = len(selection) // max(1, len(tokens))
            tokens, valid = tokens.repeat(repeats, 1), valid.repeat(repeats, 1)
        if not self.encoder.reads_unselected:
            tokens, valid, selection = remove_unselected(tokens, valid, selection)
        return self.encoder(self._looked_up(tokens), valid, selection)

    def _looked_up(self, tokens: Tensor) -> Tensor:
        """The encoder's input for tokens [..., N]: their vectors [..., N, E], or their ids."""
        return words_of(tokens) if self._reads_words else self.embedding(tokens)


class _SentencesOptions(Options):
    highway: bool = True
    """Highway layer in the head of pairs with class labels."""


def _build(setup: ClassifierSetup, options: _SentencesOptions) -> SentencesClassifier:
    encoder = setup.encoder(setup.embedding.size)
    task, outputs = _task(setup.labels)
    size, pair, classes = encoder.output_size, setup.sentences == 2, setup.labels.kind == "classes"
    if not pair:
        features, inputs = None, size
    elif classes:
        features, inputs = entailment_features, 4 * size
    else:
        features, inputs = relatedness_features, 2 * size
    head = SentencesHead(
        features,
        inputs,
        setup.head_hidden,
        outputs,
        activation=setup.activation,
        dropout=setup.dropout,
        highway=options.highway and pair and classes,
        backend=setup.backend,
    )
    return SentencesClassifier(setup.embedding, encoder, head, task)


def _task(labels: LabelSpec) -> tuple[Task, int]:
    """The task that the logits are for, and their number."""
    if labels.kind == "classes":
        return ClassTask(), len(labels.names)
    integral = float(labels.low).is_integer() and float(labels.high).is_integer()
    bins = int(labels.high - labels.low) + 1 if integral and labels.high - labels.low <= 20 else 11
    return ScoreTask(labels.low, labels.high), bins


SENTENCES = Component(
    kind="classifier",
    name="sentences",
    help="Class or score of one sentence, or of two that share the encoder.",
    build=_build,
    options=_SentencesOptions,
    capabilities=frozenset({"classes", "score"}),
    source="Bowman et al., EMNLP 2015; Tai et al., ACL 2015",
)
