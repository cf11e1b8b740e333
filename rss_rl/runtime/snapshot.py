"""What a sampler or evaluator works with: classifier and policy, published as one flat vector."""

from __future__ import annotations

__all__ = [
    "Models",
    "Snapshot",
    "StoredSnapshot",
    "autocast",
    "autocast_dtype",
    "build_models",
    "build_prepared_models",
    "fixed_threads",
    "training_lengths",
]

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rss_rl.config import Reads, RunConfig
from rss_rl.data.manifest import Manifest
from rss_rl.data.store import Prepared
from rss_rl.models.attention_choice import outer_backend
from rss_rl.models.build import build_classifier
from rss_rl.models.encoders.protocol import TrainingLengths
from rss_rl.models.protocol import Classifier
from rss_rl.policies.adapters import PolicyModule
from rss_rl.policies.build import build_policy
from rss_rl.policies.inputs import check_reads, input_size, policy_inputs
from rss_rl.runtime.device import multiplies_bfloat16
from rss_rl.seeding import stream_key
from rss_rl.types import Array, LabelSpec


@dataclass(frozen=True)
class Snapshot:
    """Weights under one version: float32 [P], classifier first, then policy."""

    version: int
    weights: Array

    @property
    def bytes(self) -> int:
        """What a sampler has to fetch."""
        return int(self.weights.nbytes)


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot whose weights lie in Ray's object store, where learners left them.

    reference  of Ray's, to the weights. bytes: their size
    """

    version: int
    reference: Any
    bytes: int


class Models(NamedTuple):
    """Classifier and policy of a run, and what the policy reads."""

    classifier: Classifier
    policy: PolicyModule
    reads: Reads = "sentence"

    def shown(
        self, tokens: Sequence[torch.Tensor], valid: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """What the policy reads of the sentences of a batch; see `policy_inputs`."""
        return policy_inputs(self.policy, self.classifier.embedding, tokens, valid, self.reads)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Both in evaluation mode inside; on leaving, each module is back in the mode it was in."""
        modules = [*self.classifier.modules(), *self.policy.modules()]
        training = [module for module in modules if module.training]
        self.classifier.eval()
        self.policy.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Both by the names that checkpoints give them."""
        return {"classifier": self.classifier, "policy": self.policy}

    def parameters(self) -> list[nn.Parameter]:
        """All parameters, in the order of a snapshot."""
        return [*self.classifier.parameters(), *self.policy.parameters()]

    def publish(self, version: int) -> Snapshot:
        """A copy of the weights as one contiguous vector."""
        flat = [p.detach().reshape(-1).float().cpu() for p in self.parameters()]
        return Snapshot(version, torch.cat(flat).numpy())

    def load(self, snapshot: Snapshot) -> None:
        """Copy a snapshot into the modules.

        Raises:
            ValueError: when it was made by other modules.
        """
        parameters = self.parameters()
        expected = sum(p.numel() for p in parameters)
        if snapshot.weights.shape != (expected,):
            raise ValueError(f"a snapshot of {snapshot.weights.shape} for {expected} parameters")
        start = 0
        with torch.no_grad():
            for parameter in parameters:
                part = snapshot.weights[start : start + parameter.numel()]
                _copy(part, parameter)
                start += parameter.numel()


def _copy(weights: Array, parameter: nn.Parameter) -> None:
    """Set a parameter to float32 [its size]."""
    # Ray hands out read-only views and torch wants writable memory, even to read: numpy does not.
    if parameter.device.type == "cpu" and parameter.dtype == torch.float32:
        np.copyto(parameter.detach().numpy(), weights.reshape(parameter.shape))
    else:
        parameter.copy_(torch.from_numpy(np.array(weights)).view_as(parameter))


def training_lengths(manifest: Manifest, batch_size: int) -> TrainingLengths | None:
    """How long the training sentences are; None where the data do not tell.

    Of passages the lengths of their sentences are not counted, and data of an early version do not
    say how lengths spread.
    """
    train = manifest.splits.get("train")
    if manifest.labels.kind == "sentence" or train is None or train.length_sd is None:
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
    """Fresh modules whose initial weights depend on the run's seed alone.

    Args:
        labels, sentences, vectors, trainable, lengths: see `build_classifier`. words: see
            `build_policy`.

    Raises:
        ConfigError: see `build_classifier`, `build_policy` and `check_reads`.
    """
    check_reads(config.policy.reads, sentences)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_key(config.seed, "initial weights"))
        classifier = build_classifier(config.model, labels, sentences, vectors, trainable, lengths)
        size = input_size(config.policy.reads, classifier.embedding.size)
        backend = outer_backend(config.model)
        policy = build_policy(config.policy, size, config.model.activation, words, backend)
    return Models(classifier, policy, config.policy.reads)


def build_prepared_models(config: RunConfig, prepared: Prepared) -> Models:
    """Fresh modules for a prepared dataset.

    Raises:
        ConfigError: see `build_models`.
    """
    manifest = prepared.manifest
    return build_models(
        config,
        manifest.labels,
        manifest.sentences,
        prepared.vectors(),
        prepared.vocabulary.trainable,
        prepared.vocabulary.words,
        training_lengths(manifest, config.batch_size),
    )


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Run with `count` CPU threads, so that a result does not depend on who computes it."""
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)


def autocast_dtype(device: torch.device, precision: str) -> torch.dtype | None:
    """The dtype of matrix products, None for float32; `auto` is bfloat16 where that is faster."""
    lower = precision == "bfloat16" or (precision == "auto" and multiplies_bfloat16(device))
    return torch.bfloat16 if lower else None


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Autocast as the configuration's `precision` asks."""
    dtype = autocast_dtype(device, precision)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
