"""The models of a run: built from its configuration, loaded from checkpoints.

Fixed word vectors, a non-persistent buffer, are in no checkpoint: every process reads them from the
data.
"""

from __future__ import annotations

import itertools
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from rss_rl.config import Reads, RunConfig
from rss_rl.data.manifest import Manifest
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import CheckpointError, ConfigError, RssError
from rss_rl.models.attention_choice import loadable_attention
from rss_rl.models.build import build_classifier
from rss_rl.models.classifier import Classifier
from rss_rl.models.dropout import drawing, evaluating
from rss_rl.models.embedding import words_of
from rss_rl.models.encoders.encoder import TrainingLengths
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops.matching import Sequences, cross_features
from rss_rl.ops.ragged import SentenceEnds
from rss_rl.policies.build import build_policy, check_reads, input_size
from rss_rl.policies.distributions import SelectionDistribution
from rss_rl.policies.policy import Policy, PolicyInputs
from rss_rl.pretrained.context import ContextReader
from rss_rl.pretrained.folder import open_pretrained
from rss_rl.seeding import stream_key
from rss_rl.types import Array, LabelSpec

_FROZEN = 4_000
"""Parameters beyond those that are saved: frozen ones of a transformer are in its folder."""


WEIGHTS = ("classifier/", "policy/")
"""Prefixes of the tensors of a checkpoint that reading needs; others only training goes on from."""


@dataclass(frozen=True)
class Models:
    """Classifier and policy of a run, and what the policy reads.

    context  computes the states of a contextual policy where a batch has none
    ends     where the sentences of a text end
    """

    classifier: Classifier
    policy: Policy
    reads: Reads = "sentence"
    context: ContextReader | None = None
    ends: SentenceEnds = field(default_factory=SentenceEnds)

    def policy_inputs(self, batch: TensorBatch) -> list[PolicyInputs]:
        """What the policy reads of each of S sentences, by the classifier's word vectors."""
        vectors = [self.classifier.embedding(ids) for ids in batch.tokens]
        words, valid = list(map(words_of, batch.tokens)), batch.valid
        states: Sequence[torch.Tensor | None] = [None] * len(words)
        if self.context is not None:
            states = batch.states or list(map(self.context.states, words, valid))
        if self.reads == "example":
            one, other = map(Sequences, words, vectors, valid)
            vectors = [cross_features(one, other), cross_features(other, one)]
        return list(map(PolicyInputs, vectors, valid, words, map(self.ends, words), states))

    def distributions(self, batch: TensorBatch) -> list[SelectionDistribution]:
        """What the policy returns, one for each of S sentences."""
        return [self.policy(inputs) for inputs in self.policy_inputs(batch)]

    def evaluating(self) -> AbstractContextManager[None]:
        """Both in evaluation mode within; on exit, each module returns to its previous mode."""
        return evaluating(self.classifier, self.policy)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Both modules by their names in checkpoints."""
        return {"classifier": self.classifier, "policy": self.policy}

    def parameters(self) -> list[nn.Parameter]:
        """All parameters."""
        return [*self.classifier.parameters(), *self.policy.parameters()]


def training_lengths(manifest: Manifest, batch_size: int) -> TrainingLengths | None:
    """Statistics of the training sentences' lengths; None if the data lack them.

    Passages have no statistics by sentence.
    """
    train = manifest.splits.get("train")
    if manifest.labels.kind == "sentence" or train is None:
        return None
    means = (tokens / train.rows for tokens in train.tokens)
    return TrainingLengths(tuple(zip(means, train.length_sd, strict=True)), batch_size)


def build_models(
    config: RunConfig,
    labels: LabelSpec,
    sentences: int,
    vectors: Array,
    trainable: int,
    words: Sequence[str] = (),
    lengths: TrainingLengths | None = None,
) -> Models:
    """New modules whose initial weights depend only on the run's seed.

    Args:
        labels, sentences, vectors, trainable, lengths, words: see `build_classifier` and
            `build_policy`.

    Raises:
        ConfigError: see `build_classifier`, `build_policy` and `check_reads`; or a module keeps
            running statistics.
    """
    check_reads(config.policy.reads, sentences)
    with drawing(stream_key(config.seed, "initial weights")):
        classifier = build_classifier(
            config.model, labels, sentences, vectors, trainable, lengths, words or None
        )
        name, how = config.policy.pretrained, (config.policy.layers, config.policy.window)
        context = None if name is None else ContextReader(name, words, *how)
        states = None if context is None else context.size
        size = input_size(config.policy.reads, classifier.embedding.size, states)
        policy = build_policy(config.policy, size, config.model.activation, words)
    for module in (*classifier.modules(), *policy.modules()):
        if getattr(module, "track_running_stats", False):
            raise ConfigError(
                f"{type(module).__name__} keeps running statistics, which samplers would lack: they"
                " get parameters only",
                where="model.encoder or policy",
                remedy="Use LayerNorm, or track_running_stats=False",
            )
    return Models(classifier, policy, config.policy.reads, context, SentenceEnds(words))


def open_data(config: RunConfig) -> Prepared:
    """The data of a run, with the states of tokens that its policy reads.

    Raises:
        DataError: see `open_prepared` and `open_states`. StorageError: a URI does not respond.
        ConfigError: the encoder of the states cannot be used.
    """
    prepared = open_prepared(config.data)
    pretrained = config.policy.pretrained
    if pretrained is None:
        return prepared
    digest = open_pretrained(pretrained).digest
    return prepared.with_states(pretrained, digest, config.policy.layers, config.policy.window)


def build_prepared_models(config: RunConfig, prepared: Prepared) -> Models:
    """New modules for a prepared dataset.

    Raises:
        ConfigError: see `build_models`.
    """
    models = _build(config, prepared, prepared.vectors())
    if (changes := prepared.held_out()) is not None:
        models.classifier.embedding.hold_out(changes)
    return models


def _build(config: RunConfig, prepared: Prepared, vectors: Array) -> Models:
    manifest = prepared.manifest
    return build_models(
        config,
        manifest.labels,
        manifest.sentences,
        vectors,
        manifest.vocabulary.trainable,
        prepared.vocabulary.words,
        training_lengths(manifest, config.batch_size),
    )


def outline(config: RunConfig, prepared: Prepared, most: int | None = None) -> Models | None:
    """The models on torch's meta device, where shapes take no memory.

    Args:
        most: parameters that they may have; None: any number.

    Returns:
        None where a component needs more than shapes.

    Raises:
        ConfigError: see `build_models`; or there are more parameters. OverflowError: a shape is too
            large to be counted.
    """
    shape = len(prepared.vocabulary), prepared.manifest.vectors.dim
    eager = config.model.model_copy(update={"attention": "eager"})
    try:
        with torch.device("meta"), warnings.catch_warnings(), _at_most(most):
            warnings.simplefilter("ignore")  # torch warns that nothing is initialised
            vectors = np.broadcast_to(np.float32(0), shape)
            return _build(config.model_copy(update={"model": eager}), prepared, vectors)
    except RssError:
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and re.search("overflow|too large", str(error), re.I):
            raise OverflowError(str(error).splitlines()[0]) from error
        return None


@contextmanager
def _at_most(most: int | None) -> Iterator[None]:
    """Limit the parameters that this thread makes."""
    thread, counter = threading.get_ident(), itertools.count(1)

    def count(*_: object) -> None:
        if most is not None and threading.get_ident() == thread and next(counter) > most:
            raise ConfigError(f"describes more than {most:,} parameters", where="model or policy")

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def restored_models(
    config: RunConfig,
    prepared: Prepared,
    tensors: Mapping[str, Array],
    vectors: Array | None = None,
) -> Models:
    """Models with the weights of a run or an export, in evaluation mode.

    Their shapes are compared before memory is taken, as the files may be anyone's.

    Args:
        tensors: see `load_weights`. vectors: of all words; default: those of the prepared data.

    Raises:
        CheckpointError: the weights do not fit. ConfigError: see `build_models`.
    """
    usable = config.model_copy(update={"model": loadable_attention(config.model)})
    try:
        shapes = outline(usable, prepared, len(tensors) + _FROZEN)
    except OverflowError as error:
        raise _unfit("classifier", str(error)) from error
    for name, module in {} if shapes is None else shapes.modules.items():
        for key, value in module.state_dict().items():
            stored = tensors.get(f"{name}/{key}")
            if stored is None or stored.shape != value.shape:
                shape = "missing" if stored is None else f"of shape {stored.shape}"
                raise _unfit(name, f"{key} is {shape}, not of shape {tuple(value.shape)}")
    if vectors is None:
        models = build_prepared_models(usable, prepared)
    else:
        models = _build(usable, prepared, vectors)
    load_weights(models, tensors, torch.device("cpu"))
    for module in models.modules.values():
        module.eval()
    return models


def select_prefix(
    tensors: Mapping[str, Array], prefix: str, device: torch.device
) -> dict[str, torch.Tensor]:
    """The tensors whose name begins with `prefix`, without it, as torch tensors."""
    return {
        name.removeprefix(prefix): torch.from_numpy(np.array(value)).to(device)
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def load_weights(models: Models, tensors: Mapping[str, Array], device: torch.device) -> None:
    """Load `classifier/...` and `policy/...` into the modules.

    Raises:
        CheckpointError: a name, shape or dtype does not fit, as with another configuration; or a
            weight is NaN or infinite.
    """
    for name, module in models.modules.items():
        stored = select_prefix(tensors, f"{name}/", device)
        try:
            for key, present in module.state_dict().items():
                if (
                    key in stored and stored[key].dtype != present.dtype
                ):  # would be converted silently
                    raise RuntimeError(f"{key} is {stored[key].dtype}, not {present.dtype}")
            weights = dict(module.named_parameters())
            for key, value in stored.items():
                if key in weights and not bool(torch.isfinite(value).all()):
                    raise RuntimeError(f"{key} has NaN or infinite weights")
            module.load_state_dict(stored)
        except RuntimeError as error:
            raise _unfit(name, str(error).splitlines()[-1].strip()) from error


def _unfit(name: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"the {name}'s weights do not fit: {what}",
        remedy="Use the configuration and data the run was started with, and unchanged files",
    )
