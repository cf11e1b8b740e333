"""From a configuration to modules."""

from __future__ import annotations

__all__ = ["AnyClassifier", "build_classifier", "parameter_count"]

from collections.abc import Callable

from torch import nn

from rss_rl.config import ModelConfig
from rss_rl.models.attention_choice import outer_backend
from rss_rl.models.classifier import Classifier
from rss_rl.models.cloze import BilinearAttention, ClozeReader, SequentialAttention
from rss_rl.models.cloze_outputs import Answering, EntityOutput, PointerOutput, WordOutput
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.encoders.contexts import build_context
from rss_rl.models.encoders.registry import build_encoder
from rss_rl.models.heads import (
    ClassTask,
    ScoreTask,
    SentencesHead,
    Task,
    entailment_features,
    relatedness_features,
)
from rss_rl.models.passage import PassageClassifier
from rss_rl.types import Array, LabelSpec

AnyClassifier = Classifier | PassageClassifier | ClozeReader
"""A run's reward model: all have `embedding`, `losses` and `predict`, and are called alike."""


def build_classifier(
    config: ModelConfig, labels: LabelSpec, sentences: int, vectors: Array, trainable: int
) -> AnyClassifier:
    """The reward model of a task, with weights drawn from torch's global generator.

    Args:
        labels: what is predicted.
        sentences: sentence slots of an example, 1 or 2.
        vectors: float32 [V, E] word vectors. trainable: leading rows that are fine-tuned.
    """
    embedding = WordEmbedding(vectors, trainable)
    if labels.kind == "sentence":
        return _build_passage(config, embedding)
    if labels.kind == "candidate":
        return _build_cloze(config, embedding)
    encoder = build_encoder(config, embedding.size)
    task, outputs = _build_task(config, labels)
    return Classifier(
        embedding,
        encoder,
        _build_head(config, labels, sentences, encoder.output_size, outputs),
        task,
    )


def _build_passage(config: ModelConfig, embedding: WordEmbedding) -> PassageClassifier:
    return PassageClassifier(
        embedding,
        build_encoder(config, embedding.size),
        build_context(
            config.model_copy(update={"block_length": config.sentence_block_length}),
            4 * config.hidden,
        ),
        ClassTask(),
        hidden=config.hidden,
        head_hidden=config.head_hidden or config.hidden,
        activation=config.activation,
        dropout=config.dropout,
    )


def _build_cloze(config: ModelConfig, embedding: WordEmbedding) -> ClozeReader:
    size = 2 * config.reader_hidden
    attention = (
        BilinearAttention(size)
        if config.reader == "stanford"
        else SequentialAttention(size, config.dropout)
    )
    outputs: dict[str, Callable[[], Answering]] = {
        "entities": lambda: EntityOutput(size, config.cloze_entities),
        "words": lambda: WordOutput(size, embedding.size),
        "pointer": PointerOutput,
    }
    return ClozeReader(
        embedding,
        attention,
        outputs[config.cloze_output](),
        ClassTask(),
        hidden=config.reader_hidden,
        dropout=config.dropout,
    )


def _build_task(config: ModelConfig, labels: LabelSpec) -> tuple[Task, int]:
    if labels.kind == "classes":
        return ClassTask(), len(labels.names)
    whole = float(labels.low).is_integer() and float(labels.high).is_integer()
    default = int(labels.high - labels.low) + 1 if whole and labels.high - labels.low <= 20 else 11
    return ScoreTask(labels.low, labels.high, config.score_loss), config.score_bins or default


def _build_head(
    config: ModelConfig, labels: LabelSpec, sentences: int, size: int, outputs: int
) -> SentencesHead:
    if sentences == 1:
        features, inputs = None, size
    elif labels.kind == "classes":
        features, inputs = entailment_features, 4 * size
    else:
        features, inputs = relatedness_features, 2 * size
    return SentencesHead(
        features,
        inputs,
        config.head_hidden or config.hidden,
        outputs,
        activation=config.activation,
        dropout=config.dropout,
        highway=config.highway and sentences == 2 and labels.kind == "classes",
        backend=outer_backend(config),
    )


def parameter_count(module: nn.Module, *, without: nn.Module | None = None) -> int:
    """Number of parameters, those of `without` (the embeddings, say) left out."""
    left_out = set() if without is None else {id(p) for p in without.parameters()}
    return sum(p.numel() for p in module.parameters() if id(p) not in left_out)
