"""A trained model for new texts: which words it selects and what it predicts from them.

Legend: B examples, S sentences an example, N_s tokens of the longest sentence of slot s, C classes.
"""

from __future__ import annotations

__all__ = ["Chosen", "Encoded", "Example", "Model", "cuts", "load_model"]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rss_rl.config import RunConfig
from rss_rl.data.sources import Text
from rss_rl.data.store import Prepared
from rss_rl.data.tokens import Tokens
from rss_rl.data.vocabulary import PAD, UNKNOWN
from rss_rl.errors import ConfigError, DataError
from rss_rl.export.artifact import open_result
from rss_rl.policies.deciding import decide
from rss_rl.runtime.choosing import mark_passage
from rss_rl.runtime.reading import Explanation, MarkedSentence
from rss_rl.runtime.snapshot import Models
from rss_rl.types import ROLES, Array, LabelSpec

Example = Text | tuple[Text, Text]
"""A text, or two where the task is on pairs or on passages with questions."""

_BATCH, _BATCH_TOKENS = 128, 1 << 14
"""Examples of a batch, and tokens with padding, at most."""


@dataclass(frozen=True)
class Encoded:
    """An example as the model reads it.

    sentences  words and keys of each sentence. ids: S x int64 [N_s]
    marks      int64 [N_0], see `rss_rl.types.Batch`; None where labels are no choice
    names      of the classes, sentences or candidates; empty for a score
    """

    sentences: tuple[Tokens, ...]
    ids: tuple[Array, ...]
    marks: Array | None
    names: tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    """Selections of a batch, S x bool [B, 2, N_s], with probabilities, S x [B, 2, N_s] or none."""

    tokens: list[Tensor]
    valid: list[Tensor]
    marks: Tensor | None
    selections: list[Tensor]
    probabilities: list[Tensor] | None


class Model:
    """Reads texts with a trained classifier and policy, on the CPU; made by `rss_rl.load`.

    Tokens with a probability over one half are selected. Where a run trained without a policy
    every token is.

    config, models, inputs  as `rss_rl.runtime.run.open_models` returns them
    """

    def __init__(self, config: RunConfig, models: Models, inputs: Prepared) -> None:
        self.config, self.models, self.inputs = config, models, inputs
        self._selects = config.phases[-1].selection == "sampled"

    @property
    def labels(self) -> LabelSpec:
        """What is predicted."""
        return self.inputs.labels

    @property
    def selects(self) -> bool:
        """Whether there is a policy that selects."""
        return self._selects

    def select(self, examples: Sequence[Example]) -> list[tuple[MarkedSentence, ...]]:
        """The sentences of each example with the words that are selected.

        Raises:
            DataError: see `encode`.
        """
        return [explanation.sentences for explanation in self.predict(examples)]

    def predict(self, examples: Sequence[Example]) -> list[Explanation]:
        """Prediction of each example, and the words it rests on; see `Explanation`.

        Args:
            examples: a text each, or a pair of texts where the task has two. A text that is a tuple
                of words is not tokenised.

        Raises:
            DataError: see `encode`.
        """
        encoded = [
            self.encode(self._texts(example), f"example {number}")
            for number, example in enumerate(_list(examples), start=1)
        ]
        return [found for cut in cuts(encoded) for found in self.read(cut)]

    def encode(self, texts: Sequence[Text], where: str = "") -> Encoded:
        """Words and ids of an example, given as its texts; `where` is for messages.

        Raises:
            DataError: not as many texts as the task has, a text without a word, nothing to choose
                from.
        """
        if len(texts) != self.inputs.sentences:
            wanted = self.inputs.sentences
            raise DataError(
                f"has {len(texts)} text(s) where the task has {wanted}",
                where=where,
                remedy="Give each example as " + ("a text" if wanted == 1 else "a pair of texts"),
            )
        names, marks = self.labels.names, None
        if self.labels.chooses:
            passage = mark_passage(self.labels, *texts)
            texts, marks, names = passage.texts, passage.marks, passage.names
        sentences = tuple(self.inputs.tokenizer(text) for text in texts)
        if not all(sentence.words for sentence in sentences):
            raise DataError("a text has no word in it", where=where)
        ids = tuple(self.inputs.vocabulary.ids(sentence.keys) for sentence in sentences)
        return Encoded(sentences, ids, marks, names)

    def _texts(self, example: Example) -> Sequence[Text]:
        if self.inputs.sentences == 1 or isinstance(example, str):
            return (example,)  # type: ignore[return-value]
        return example

    def choose(self, examples: Sequence[Encoded]) -> Chosen:
        """The thresholded selections of a batch."""
        slots = range(self.inputs.sentences)
        tokens = [_padded([e.ids[slot] for e in examples], PAD) for slot in slots]
        valid = [_valid([len(e.ids[slot]) for e in examples]) for slot in slots]
        found = [e.marks for e in examples if e.marks is not None]
        marks = _padded(found, -1) if found else None
        everything = [mask[:, None].expand(-1, ROLES, -1) for mask in valid]
        if not self._selects:
            return Chosen(tokens, valid, marks, everything, None)
        with torch.inference_mode():
            shown = self.models.shown(tokens, valid)
            both = [decide(self.models.policy, *pair) for pair in zip(shown, valid, strict=True)]
        chances = [each.probabilities.float() for each in both]
        return Chosen(tokens, valid, marks, [each.selection for each in both], chances)

    def logits(self, chosen: Chosen) -> Tensor:
        """[B, C].

        Raises:
            ConfigError: the run trained no classifier.
        """
        if not self.config.predicts:
            raise ConfigError(
                "the run trained no classifier, so its model predicts nothing",
                where="phases",
                remedy="Train with a phase that has supervised: true, or select words alone",
            )
        with torch.inference_mode():
            logits: Tensor = self.models.classifier(
                chosen.tokens, chosen.valid, chosen.selections, chosen.marks
            )
        return logits

    def read(self, examples: Sequence[Encoded]) -> list[Explanation]:
        """Selections and predictions of one batch."""
        chosen = self.choose(examples)
        if not self.config.predicts:
            return [
                Explanation(_sentences(example, chosen, row), None, None)
                for row, example in enumerate(examples)
            ]
        logits = self.logits(chosen)
        predicted = self.models.classifier.predict(logits).tolist()
        shares = torch.softmax(logits, -1).tolist()
        found = []
        for row, example in enumerate(examples):
            sentences = _sentences(example, chosen, row)
            if self.labels.kind == "score":
                found.append(Explanation(sentences, float(predicted[row]), None))
                continue
            named = dict(zip(example.names, shares[row], strict=False))  # behind: padding
            found.append(Explanation(sentences, example.names[predicted[row]], named))
        return found


def load_model(path: Path | str, which: str | int = "best") -> Model:
    """See `rss_rl.load`."""
    return Model(*open_result(path, which))


def _list(examples: Sequence[Example]) -> Sequence[Example]:
    if isinstance(examples, str):
        raise DataError(
            "one text is given where a list of examples is expected",
            remedy='Put it into a list: ["A text."]',
        )
    return examples


def cuts(encoded: Sequence[Encoded]) -> Iterator[Sequence[Encoded]]:
    """The examples in batches that take a bounded amount of memory."""
    start, longest = 0, 0
    for end, example in enumerate(encoded):
        longest = max(longest, sum(map(len, example.ids)))
        count = end - start
        if count and (count == _BATCH or longest * (count + 1) > _BATCH_TOKENS):
            yield encoded[start:end]
            start, longest = end, sum(map(len, example.ids))
    if start < len(encoded):
        yield encoded[start:]


def _valid(lengths: Sequence[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _padded(rows: Sequence[Array], filler: int) -> Tensor:
    """int64 [B, N]."""
    filled = np.full((len(rows), max(map(len, rows))), filler, np.int64)
    for row, values in zip(filled, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(filled)


def _sentences(example: Encoded, chosen: Chosen, row: int) -> tuple[MarkedSentence, ...]:
    return tuple(_marked(example, chosen, slot, row) for slot in range(len(example.ids)))


def _marked(example: Encoded, chosen: Chosen, slot: int, row: int) -> MarkedSentence:
    ids, words = example.ids[slot], example.sentences[slot].words
    chances = None
    if chosen.probabilities is not None:
        chances = chosen.probabilities[slot][row, :, : len(ids)].numpy()
    bits = chosen.selections[slot][row, :, : len(ids)].numpy()
    return MarkedSentence(words, ids != UNKNOWN, bits, chances)
