"""The base class of classifiers, the task models around an encoder, and their setup.

Legend: M examples (or selections of examples), N_s tokens of sentence slot s, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.encoders.encoder import Encoder, TokenEncoder
from rss_rl.ops.attention import KernelBackend
from rss_rl.types import LabelSpec


@dataclass(frozen=True)
class ClassifierSetup:
    """What a classifier is built from.

    labels       what is predicted; its kind is a capability of classifiers
    sentences    sentence slots of an example, 1 or 2; of passages 2, passage and question
    embedding    of words; the classifier keeps it as `embedding`
    encoder      builds the sentence encoder for a number of input features
    context      builds the layer that fuses a sequence of sentence vectors, likewise
    hidden       D of the encoder. head_hidden: of the layers after it
    activation   relu or elu. dropout: rate on the input of each layer
    backend      what computes the layers
    """

    labels: LabelSpec
    sentences: int
    embedding: WordEmbedding
    encoder: Callable[[int], Encoder]
    context: Callable[[int], TokenEncoder]
    hidden: int
    head_hidden: int
    activation: str
    dropout: float
    backend: KernelBackend


class Task(Protocol):
    """What logits mean: their loss for a label, and the label that they predict."""

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Loss of each example, [M]; its negative is the log-likelihood of the reward."""

    def predict(self, logits: Tensor) -> Tensor:
        """Class index, score, or number of the sentence or candidate of each example, [M]."""


class Classifier(nn.Module):
    """Tokens and selections to logits, whose meaning the task says.

    Args:
        embedding: of words; policies read it, too.
    """

    shares_sentences = False
    """Whether it takes K M selections of M examples, sample-major."""
    reads_folds = True
    """Whether tokens may be those of `Batch.ids`."""

    def __init__(self, embedding: WordEmbedding, task: Task) -> None:
        super().__init__()
        self.embedding = embedding
        self._task = task

    @property
    def takes_gates(self) -> bool:
        """Whether selections may be gates in [0, 1], see `GatedEncoder`."""
        return False

    def forward(
        self,
        tokens: Sequence[Tensor],
        valid: Sequence[Tensor],
        selections: Sequence[Tensor] | None = None,
        marks: Tensor | None = None,
    ) -> Tensor:
        """Logits [M, C].

        Args:
            tokens: S x int64 [M, N_s]. valid: S x bool [M, N_s].
            selections: S x bool [M, 2, N_s]; None selects every token in both roles.
            marks: int64 [M, N_0], only of passages, see `Batch`.
        """
        raise NotImplementedError

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """See `Task`."""
        return self._task.losses(logits, labels)

    def predict(self, logits: Tensor) -> Tensor:
        """See `Task`."""
        return self._task.predict(logits)
