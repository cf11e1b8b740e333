"""A trained model applied to new texts: the words it selects and what it predicts from them.

Legend: B examples, S sentences per example, N_s tokens of the longest sentence in slot s,
C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import torch
from torch import Tensor

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig
from rss_rl.data.checks import length_fault
from rss_rl.data.label_weights import sum_subwords
from rss_rl.data.sources import Text, checked_text
from rss_rl.data.store import Prepared
from rss_rl.data.tokens import Tokens
from rss_rl.data.vocabulary import PAD, UNKNOWN
from rss_rl.errors import ConfigError, DataError
from rss_rl.inference.artifact import (
    PackedModel,
    Scores,
    about_model,
    open_result,
    temperature,
)
from rss_rl.inference.explanation import Explanation, MarkedSentence
from rss_rl.models.build import check_defaults
from rss_rl.models.encoders.encoder import WordEncoder
from rss_rl.ops.rationale_overlap import top_share
from rss_rl.policies.distributions import word_scores
from rss_rl.pretrained.context import ContextReader
from rss_rl.reading.device import find_device, fixed_threads
from rss_rl.reading.memory import memory_errors
from rss_rl.reading.models import Models
from rss_rl.reading.scan import Scanned
from rss_rl.types import Array, Batch, LabelSpec

if TYPE_CHECKING:
    import pandas

Example = Text | tuple[Text, Text]
"""One text, or two for tasks on pairs."""

_CPU = torch.device("cpu")
_BATCH, _BATCH_TOKENS = 256, 1 << 14
"""Limits of a batch: examples, and tokens including padding."""
_ONE_THREAD = 1 << 30
"""Multiplications of weights that one thread does in some 50 ms. Waiting for a second thread where
other programs are busy takes as long, even for one text.
"""
_NEW_WORDS = 1 << 17
"""Limit of unseen words that a model remembers."""


@dataclass(frozen=True)
class Encoded:
    """An example as model input.

    texts      as given, each a str or a tuple of words
    sentences  words and keys of each sentence. ids: S x int64 [N_s]
    """

    texts: tuple[Text, ...]
    sentences: tuple[Tokens, ...]
    ids: tuple[Array, ...]

    def __len__(self) -> int:
        """Words of all sentences."""
        return sum(map(len, self.ids))


@dataclass(frozen=True)
class Chosen:
    """Selections of a batch, S x bool [B, 2, N_s], with probabilities, S x [B, 2, N_s] or none.

    Both are on the CPU.
    """

    scanned: Scanned
    selections: list[Tensor]
    probabilities: list[Tensor] | None


def keep_words(chosen: Chosen, keep: Sequence[Array]) -> Chosen:
    """Keep exactly the given words.

    A selected word keeps its roles; an added one becomes head and dependent.

    Args:
        keep: S x bool [B, N_s].
    """
    changed = []
    for selection, bits in zip(chosen.selections, keep, strict=True):
        selected = selection.any(1, keepdim=True)  # [B, 1, N]
        changed.append((selection | ~selected) & torch.from_numpy(bits)[:, None])
    return replace(chosen, selections=changed)


def keep_share(chosen: Chosen, share: float) -> Chosen:
    """Keep `share` of each text's words by `word_scores`, at least one; roles as in `keep_words`.

    Args:
        share: in [0, 1].

    Raises:
        ConfigError: the run has no policy, so words have no scores.
    """
    if chosen.probabilities is None:
        raise ConfigError(
            "the run has no policy, so words have no scores to choose a share by",
            remedy="Say which words to keep",
        )
    pairs = zip(chosen.probabilities, chosen.scanned.batch.valid, strict=True)
    best = [top_share(word_scores(chances), valid, share) for chances, valid in pairs]
    return keep_words(chosen, best)


def check_share(share: float | None) -> None:
    """Refuse what is no share of words to keep.

    Raises:
        ConfigError: it is not in [0, 1].
    """
    if share is not None and not 0 <= share <= 1:
        raise ConfigError(
            f"{share!r:.40} is not in [0, 1]",
            where="share (--share)",
            remedy="Give the share of the words to keep, such as 0.2",
        )


class Model:
    """A trained classifier and policy; made by `rss_rl.load`.

    Tokens with a probability over one half are selected; without a policy, all tokens.

    config, models, inputs  as `rss_rl.reading.trained_runs.open_models` returns them
    device                  that computes; what `choose` and `logits` return is on the CPU
    scores                  of the run, see `rss_rl.inference.artifact.open_result`
    """

    def __init__(
        self,
        config: RunConfig,
        models: Models,
        inputs: Prepared,
        device: torch.device = _CPU,
        scores: Scores = MappingProxyType({}),
    ) -> None:
        self.config, self.models, self.inputs, self.device = config, models, inputs, device
        self.scores = scores
        for module in models.modules.values():
            module.to(device)
        models.classifier.embedding.join()
        tuned = models.classifier.embedding.trainable.numel()
        self._weights = sum(weight.numel() for weight in models.parameters()) - tuned
        self._new_words: dict[str, int] = {}
        self._subwords = inputs.subwords
        encoder = getattr(models.classifier, "encoder", None)
        # Word vectors cover only the vocabulary; these can encode any word.
        self._readers: list[WordEncoder | ContextReader] = []
        self._readers += [encoder] if isinstance(encoder, WordEncoder) else []
        self._readers += [] if models.context is None else [models.context]

    @property
    def labels(self) -> LabelSpec:
        """What is predicted."""
        return self.inputs.labels

    @property
    def selects(self) -> bool:
        """Whether a policy selects words."""
        return self.config.selects

    def __repr__(self) -> str:
        return f"rss_rl.Model: {self.about}"

    @property
    def about(self) -> str:
        """What it predicts and learnt from, how it reads, how well it does."""
        return " ".join(about_model(self.config, self.inputs.manifest, self.scores))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of the classes, float32 [B, C], calibrated by the run's `temperature`."""
        return torch.softmax(logits.float() / temperature(self.config, self.scores), -1)

    def select(
        self, examples: Sequence[Example], *, share: float | None = None
    ) -> list[tuple[MarkedSentence, ...]]:
        """The sentences of each example with their selected words; see `predict`."""
        return [explanation.sentences for explanation in self.predict(examples, share=share)]

    def explain(self, example: Example) -> Explanation:
        """Prediction for one example and the words it is based on; see `predict`."""
        return self.predict([example])[0]

    @overload
    def predict(
        self,
        examples: Sequence[Example],
        *,
        share: float | None = None,
        as_frame: Literal[False] = False,
    ) -> list[Explanation]: ...

    @overload
    def predict(
        self, examples: Sequence[Example], *, share: float | None = None, as_frame: Literal[True]
    ) -> pandas.DataFrame: ...

    def predict(
        self, examples: Sequence[Example], *, share: float | None = None, as_frame: bool = False
    ) -> list[Explanation] | pandas.DataFrame:
        """Prediction for each example and the words it is based on.

        Args:
            examples: one text each, or a pair for tasks on two texts; or a pandas table with one
                column. A tuple of words is not tokenised.
            share: of each text's words, to keep instead: the most probable ones, at least one.
            as_frame: a pandas table of `Explanation.cells`. What is wrong with an example, which
                otherwise is raised, stands in its column `error`.

        Raises:
            DataError: see `encode`.
            ConfigError: a share of a run without a policy, or not in [0, 1].
        """
        check_share(share)
        if as_frame:
            return self._frame(examples, share)
        return self.read_all([self._encoded(*pair) for pair in _numbered(examples)], share)

    def _frame(self, examples: Sequence[Example], share: float | None) -> pandas.DataFrame:
        import pandas

        encoded: list[Encoded] = []
        faults: list[str | None] = []
        for pair in _numbered(examples):
            try:
                encoded.append(self._encoded(*pair))
                faults.append(None)
            except DataError as error:
                faults.append(error.what)
        explanations = iter(self.read_all(encoded, share))
        rows = [{} if fault else next(explanations).cells() for fault in faults]
        return pandas.DataFrame(rows).assign(error=faults)

    def _encoded(self, where: str, example: Example) -> Encoded:
        one = self.inputs.sentences == 1
        texts = example if isinstance(example, tuple | list) and not one else (example,)
        more = "" if one else ", two to an example"
        return self.encode([checked_text(text, where, more) for text in texts], where)

    def encode(self, texts: Sequence[Text], where: str = "") -> Encoded:
        """Tokenise the texts of an example and map them to ids; `where` is for messages.

        Raises:
            DataError: the wrong number of texts, or a text without words or with too many.
        """
        self.check_number(texts, where)
        sentences = tuple(self._tokens(text, where) for text in texts)
        if not all(sentence.words for sentence in sentences):
            raise DataError(
                "a text has no words", where=where, remedy="Give a text with at least one word"
            )
        ids = tuple(self._ids(sentence.keys) for sentence in sentences)
        return Encoded(tuple(texts), sentences, ids)

    def _tokens(self, text: Text, where: str) -> Tokens:
        tokens, fault = Tokens((), ()), length_fault(text)
        if fault is None:
            tokens = self.inputs.tokenizer(text)
            fault = length_fault(text, len(tokens.words))
        if fault is not None:
            raise DataError(fault[0], where=where, remedy=fault[1])
        return tokens

    def check_number(self, texts: Sequence[Text], where: str = "") -> None:
        """Refuse an example of more or fewer texts than the task has.

        Raises:
            DataError: it is one.
        """
        if len(texts) != (wanted := self.inputs.sentences):
            raise DataError(
                f"has {len(texts)} text(s) where the task has {wanted}",
                where=where,
                remedy="Give each example as " + ("a text" if wanted == 1 else "a pair of texts"),
            )

    def _ids(self, keys: Sequence[str]) -> Array:
        """int64 [N]; words unseen in training get new ids if something reads parts of words."""
        ids = self.inputs.vocabulary.ids(keys)
        by_word = not self._readers and self._subwords is None
        if by_word or not (ids == UNKNOWN).any():
            return ids
        unseen = {keys[index] for index in np.flatnonzero(ids == UNKNOWN).tolist()}
        new = sorted(word for word in unseen if word not in self._new_words)
        new = new[: _NEW_WORDS - len(self._new_words)]
        if new:
            self._add_words(new)
        for place in np.flatnonzero(ids == UNKNOWN).tolist():
            ids[place] = self._new_words.get(keys[place], UNKNOWN)
        return ids

    @torch.inference_mode(False)
    @torch.no_grad()
    def _add_words(self, words: Sequence[str]) -> None:
        """Their vectors are an unknown word's, but for the label weights of their subwords."""
        for reader in (*self._readers, self.models.ends):
            reader.add_words(words)
        embedding = self.models.classifier.embedding
        vectors = embedding(torch.full((len(words),), UNKNOWN, device=self.device))
        if self._subwords is not None:
            weights = torch.from_numpy(sum_subwords(words, self._subwords))
            vectors[:, -weights.shape[1] :] = weights.to(self.device)
        embedding.add_words(vectors)
        first = len(self.inputs.vocabulary) + len(self._new_words)
        self._new_words |= {word: first + number for number, word in enumerate(words)}

    def read_all(
        self, examples: Sequence[Encoded], share: float | None = None
    ) -> list[Explanation]:
        """`read` of any number of examples, in batches of like lengths; in the given order."""
        order = sorted(range(len(examples)), key=lambda place: len(examples[place]))
        read = (self.read(cut, share) for cut in _cuts([examples[place] for place in order]))
        explanations = dict(zip(order, chain.from_iterable(read), strict=True))
        return [explanations[place] for place in range(len(examples))]

    def choose(self, examples: Sequence[Encoded]) -> Chosen:
        """The selections of a batch."""
        with torch.inference_mode():
            scanned = Scanned.of(self.models, batch_of(examples), self.device)
            if not self.selects:
                return Chosen(scanned, [bits.cpu() for bits in scanned.everything], None)
            distributions = scanned.distributions
            chances = [each.probs.float().cpu() for each in distributions]
            return Chosen(scanned, [each.mode.cpu() for each in distributions], chances)

    def logits(self, chosen: Chosen) -> Tensor:
        """Logits, [B, C].

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
            read = [bits.to(self.device) for bits in chosen.selections]
            return chosen.scanned.logits(read).cpu()

    def read(
        self,
        examples: Sequence[Encoded],
        share: float | None = None,
        keep: Sequence[Array] | None = None,
    ) -> list[Explanation]:
        """Selections and predictions of one batch.

        Args:
            share: of each text's words to keep, see `keep_share`. keep: the words to keep, see
                `keep_words`. Default: those that the policy selects.

        Raises:
            ConfigError: a share of a run without a policy. ResourceError: not enough memory.
        """
        few = sum(map(len, examples)) * self._weights < _ONE_THREAD
        threads = fixed_threads(1 if few else torch.get_num_threads())
        with threads, memory_errors("to read a text", "Cut it, or use a machine with more"):
            chosen = self.choose(examples)
            chosen = chosen if share is None else keep_share(chosen, share)
            chosen = chosen if keep is None else keep_words(chosen, keep)
            return self._explained(examples, chosen)

    def _explained(self, examples: Sequence[Encoded], chosen: Chosen) -> list[Explanation]:
        # What reads subword pieces knows new words, too; of others only label weights are known.
        known = len(self.inputs.vocabulary) + (len(self._new_words) if self._readers else 0)
        sentences = list(zip(*_sentences(examples, chosen, known), strict=True))
        if not self.config.predicts:
            return [Explanation(marked, None, None) for marked in sentences]
        logits = self.logits(chosen)
        predicted = self.models.classifier.predict(logits).tolist()
        if self.labels.kind == "score":
            return [
                Explanation(marked, float(score), None)
                for marked, score in zip(sentences, predicted, strict=True)
            ]
        names = self.labels.names
        shares = self.probabilities(logits).tolist()
        return [
            Explanation(marked, names[number], dict(zip(names, its, strict=True)))
            for marked, number, its in zip(sentences, predicted, shares, strict=True)
        ]


def load_model(
    path: Path | str | PackedModel,
    which: str | int = "best",
    trust: Trust = NOTHING,
    device: str = "cpu",
) -> Model:
    """See `rss_rl.load`."""
    check_defaults()
    computes_on = find_device(device, "device")
    with memory_errors("for the model", "Use a machine with more, or end other programs"):
        config, models, inputs, scores = open_result(path, which, trust)
        if inputs.labels.chooses:
            raise ConfigError(
                f"it chooses a {inputs.labels.kind} of a passage, and a new passage does not say"
                " what there is to choose from",
                where=str(path),
                remedy="Read its own data with it: rss-rl evaluate and rss-rl report",
            )
        return Model(config, models, inputs, computes_on, scores)


def _numbered(examples: Sequence[Example]) -> Iterator[tuple[str, Example]]:
    """Each example with its place, for messages.

    Raises:
        DataError: they are no list.
    """
    if hasattr(examples, "iloc") and len(getattr(examples, "columns", ())) == 1:
        examples = list(examples.iloc[:, 0])  # a pandas table of texts alone
    if isinstance(examples, str | Mapping) or hasattr(examples, "columns"):
        # Iterating over a table or a mapping gives its names, which would be predicted.
        kind = "one text" if isinstance(examples, str) else f"a {type(examples).__name__}"
        raise DataError(
            f"got {kind}, expected a list of examples",
            remedy='Give a list of texts, ["A text."], or a column: list(table["text"])',
        )
    for number, example in enumerate(examples, start=1):
        yield f"example {number}", example


def _cuts(examples: Sequence[Encoded]) -> Iterator[Sequence[Encoded]]:
    """Split examples of ascending length into batches of bounded memory."""
    start = 0
    for end, example in enumerate(examples):
        count = end - start
        if count and (count == _BATCH or len(example) * (count + 1) > _BATCH_TOKENS):
            yield examples[start:end]
            start = end
    if examples:
        yield examples[start:]


def batch_of(examples: Sequence[Encoded]) -> Batch:
    """Examples without labels as a batch."""
    rows = np.arange(len(examples))
    slots = list(zip(*(example.ids for example in examples), strict=True))
    lengths = [np.array([[len(ids)] for ids in slot]) for slot in slots]
    return Batch(
        rows,
        tuple(map(_padded, slots)),
        tuple(np.arange(column.max()) < column for column in lengths),
        labels=np.zeros_like(rows),
    )


def _padded(rows: Sequence[Array]) -> Array:
    """Token ids, int64 [B, N]."""
    filled = np.full((len(rows), max(map(len, rows))), PAD, np.int64)
    for row, values in zip(filled, rows, strict=True):
        row[: len(values)] = values
    return filled


def _sentences(
    examples: Sequence[Encoded], chosen: Chosen, known: int
) -> Iterator[list[MarkedSentence]]:
    """The sentences of each slot; words with ids from `known` on are unknown."""
    for slot, (ids, selected) in enumerate(
        zip(chosen.scanned.batch.ids, chosen.selections, strict=True)
    ):
        seen, bits = (ids != UNKNOWN) & (ids < known), selected.numpy()
        chances = None if chosen.probabilities is None else chosen.probabilities[slot].numpy()
        marked = []
        for row, example in enumerate(examples):
            words = example.sentences[slot].words
            end = len(words)
            each = None if chances is None else chances[row, :, :end]
            marked.append(MarkedSentence(words, seen[row, :end], bits[row, :, :end], each))
        yield marked
