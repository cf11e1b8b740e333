"""Builds modules from a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import torch

from rss_rl.components import built_in_names
from rss_rl.config import ClassifierChoice, ModelConfig
from rss_rl.errors import ConfigError
from rss_rl.models.attention_choice import outer_backend
from rss_rl.models.classifier import Classifier, ClassifierSetup
from rss_rl.models.dropout import Dropout
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.encoders.encoder import (
    Encoder,
    EncoderComponent,
    EncoderSetup,
    TokenEncoder,
    TrainingLengths,
)
from rss_rl.models.encoders.pooled import NoContext
from rss_rl.types import Array, LabelSpec


def check_defaults(devices: tuple[str, ...] = ("cpu",)) -> None:
    """Refuse what a process may have set for all new tensors.

    Args:
        devices: to build on; `meta` only counts parameters.

    Raises:
        ConfigError: they are not float32, or on another device.
    """
    new = torch.empty(0)
    if new.dtype != torch.float32 or new.device.type not in devices:
        raise ConfigError(
            f"torch makes {new.dtype} on {new.device.type} in this process, and models are"
            " float32, built on the CPU",
            remedy="Call torch.set_default_dtype(torch.float32) and torch.set_default_device('cpu')"
            " before",
        )


def build_classifier(
    config: ModelConfig,
    labels: LabelSpec,
    sentences: int,
    vectors: Array,
    trainable: int,
    lengths: TrainingLengths | None = None,
    words: Sequence[str] | None = None,
) -> Classifier:
    """The reward model of a task, with weights drawn from torch's global generator.

    Args:
        labels: what is predicted.
        sentences: sentence slots of an example, 1 or 2.
        vectors: float32 [V, E] word vectors. trainable: leading rows that are fine-tuned.
        lengths: of the training sentences. words: of the token ids. None if unknown.

    Raises:
        ConfigError: the classifier does not support these labels, options are invalid, or see
            `check_defaults`.
    """
    check_defaults(("cpu", "meta"))
    setup = ClassifierSetup(
        labels,
        sentences,
        WordEmbedding(vectors, trainable),
        encoder=partial(build_encoder, config, lengths=lengths, words=words),
        context=partial(build_context, config, lengths=lengths),
        hidden=config.hidden,
        head_hidden=config.head_hidden or config.hidden,
        activation=config.activation,
        dropout=config.dropout,
        backend=outer_backend(config),
    )
    classifier = cast(Classifier, classifier_for(config, labels).build(setup))
    for module in classifier.modules():
        if isinstance(module, Dropout):
            module.kernels = config.attention != "eager"
    return classifier


def classifier_for(config: ModelConfig, labels: LabelSpec) -> ClassifierChoice:
    """The configured classifier, or the built-in one for such labels.

    Raises:
        ConfigError: the configured one does not support them.
    """
    built_in = [ClassifierChoice(name=name) for name in built_in_names("classifier")]
    fitting = [choice for choice in built_in if choice.can(labels.kind)]
    if config.classifier is None:
        return fitting[0]
    if not config.classifier.can(labels.kind):
        raise ConfigError(
            f"classifier '{config.classifier.name}' is not for labels of the kind {labels.kind}",
            where="model.classifier",
            remedy=f"Use {' or '.join(choice.name for choice in fitting)}, or leave it out",
        )
    return config.classifier


def build_encoder(
    config: ModelConfig,
    inputs: int,
    lengths: TrainingLengths | None = None,
    words: Sequence[str] | None = None,
) -> Encoder:
    """The configured sentence encoder, reading `inputs` features.

    Raises:
        ConfigError: invalid options.
    """
    return cast(Encoder, config.encoder.build(_setup(config, inputs, lengths, words)))


def build_context(
    config: ModelConfig, inputs: int, lengths: TrainingLengths | None = None
) -> TokenEncoder:
    """The configured encoder's layer over a sequence of sentences, reading `inputs` features.

    Without one, sentence vectors stay as they are.

    Raises:
        ConfigError: invalid options.
    """
    component = config.encoder.component
    if not isinstance(component, EncoderComponent) or component.context is None:
        return NoContext(inputs)
    options = component.parse(config.encoder.options)
    return component.context(_setup(config, inputs, lengths), options)


def _setup(
    config: ModelConfig,
    inputs: int,
    lengths: TrainingLengths | None,
    words: Sequence[str] | None = None,
) -> EncoderSetup:
    return EncoderSetup(
        inputs,
        config.hidden,
        config.activation,
        config.dropout,
        outer_backend(config),
        lengths,
        words,
    )
