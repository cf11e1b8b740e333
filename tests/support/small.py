"""Small modules and batches: every parameter random (zero biases hide mistakes), float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from model_configs import model_config
from torch import Tensor, nn

from rss_rl.components import EVERYTHING, find_component
from rss_rl.config import (
    LearnerConfig,
    PolicyConfig,
    PolicyUpdateConfig,
    Reads,
    RewardConfig,
    parse_section,
)
from rss_rl.learners.group import ALONE, Group
from rss_rl.learners.optim import GradientStep
from rss_rl.learners.updates import RewardBatch, UpdateSetup, build_update, read
from rss_rl.models.build import build_classifier
from rss_rl.models.inputs import TensorBatch
from rss_rl.models.sentences import SentencesClassifier
from rss_rl.ops.ragged import SentenceEnds
from rss_rl.policies.build import build_policy, input_size
from rss_rl.policies.policy import Policy, PolicyInputs
from rss_rl.reward_models.reward_model import Rewards
from rss_rl.seeding import example_keys
from rss_rl.types import LabelSpec

EMBEDDING, HIDDEN, WORDS, TRAINABLE = 5, 4, 30, 24
CLASSES = LabelSpec("classes", ("no", "maybe", "yes"))
SCORE = LabelSpec("score", low=1.0, high=5.0)

VOCABULARY = ("<pad>", "<unk>", "The", "film", "is", "not", "good", ".", "of", "it", "bad", "was")
"""Words of the first token ids, for policies that read words."""
ENDS = SentenceEnds(VOCABULARY)

VARIANTS: dict[str, dict[str, Any]] = {
    "resan": {"keep_unselected": True},
    "faithful": {"keep_unselected": False},
    "source2token": {"encoder": "source2token"},
    "mean": {"encoder": "mean"},
    "attention": {"encoder": "attention"},
    "biblosan": {"encoder": "biblosan", "block_length": 3},
    "biblosan w/o local": {"encoder": "biblosan", "block_length": 2, "local": False},
    "biblosan w/o global": {"encoder": "biblosan", "block_length": 2, "across": False},
}
"""Settings of `model_config` for each encoder."""


def randomise(module: nn.Module, seed: int = 0) -> None:
    """Draw every parameter from N(0, 0.6^2)."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(0.6 * noise)


def classifier(
    labels: LabelSpec = CLASSES,
    sentences: int = 2,
    *,
    seed: int = 0,
    double: bool = True,
    **settings: Any,
) -> SentencesClassifier:
    """A random classifier in evaluation mode."""
    vectors = np.random.default_rng(seed).normal(size=(WORDS, EMBEDDING)).astype(np.float32)
    vectors[0] = 0
    config = model_config(**({"hidden": HIDDEN, "dropout": 0.0} | settings))
    model: Any = build_classifier(config, labels, sentences, vectors, TRAINABLE)
    randomise(model.encoder, seed)
    randomise(model.head, seed + 1)
    return (model.double() if double else model).eval()


def policy_config(
    *,
    name: str = "rss",
    reads: Reads = "sentence",
    options: dict[str, Any] | None = None,
    **more: Any,
) -> PolicyConfig:
    """The choice of a policy, small where it has a size; `more` are options of it, too."""
    given = more | (options or {})
    if "hidden" in find_component("policy", name).options.model_fields:
        given = {"hidden": HIDDEN} | given
    return PolicyConfig(name=name, reads=reads, options=given)


def policy_update(
    policy: Policy,
    embedding: Any,
    learner: LearnerConfig | None = None,
    group: Group = ALONE,
    autocast: torch.dtype | None = None,
    name: str = "reinforce",
    **options: Any,
) -> Any:
    """The policy update of that name and these options, of a policy that reads word vectors."""
    config = learner or LearnerConfig()
    setup = UpdateSetup(policy, config, RewardConfig(), autocast, group)
    named = parse_section(
        PolicyUpdateConfig, {"name": name, "options": options}, where="test", trust=EVERYTHING
    )
    update: Any = build_update(named, setup)
    update.embedding = embedding
    return update


def policy_inputs(embedding: Any, batch: TensorBatch) -> list[PolicyInputs]:
    """What a policy that reads word vectors reads of a batch."""
    slots = zip(batch.tokens, batch.valid, strict=True)
    return [PolicyInputs(embedding(t).detach(), v, t, ENDS(t)) for t, v in slots]


def rewarded(selections: Any, rewards: Tensor, *more: Any) -> RewardBatch:
    """A rollout with rewards [K, B, S], whose score is 0."""
    terms = Rewards({"score": torch.zeros_like(rewards[..., 0])}, {"cost": -rewards})
    return RewardBatch(selections, terms, *more)


def gradients(update: Any, batch: TensorBatch, rollout: Any, number: int = 0, **more: Any) -> Any:
    """Those of a `policy_update`."""
    inputs = policy_inputs(update.embedding, batch)
    return update.gradients(batch, inputs, rollout, number=number, **({"price": None} | more))


def stepped(step: GradientStep, loss: Tensor, update: int) -> float:
    """Gradients and step of an optimiser; the gradient norm before clipping."""
    norm = float(step.prepare(update, (loss, 1.0)))
    step.clip(float(loss.detach()), norm)
    step.apply()
    return norm


def step(update: Any, batch: TensorBatch, rollout: Any, number: int = 0, **more: Any) -> Any:
    """Gradients and step of an update; its metrics."""
    scalars = read([gradients(update, batch, rollout, number, **more)])
    update.apply()
    return scalars


def learn(learner: Any, batch: TensorBatch, selections: Any, number: int, keys: Tensor) -> Any:
    """Gradients and step of the classifier; its metrics."""
    scalars = read([learner.gradients(batch, selections, number=number, dropout_keys=keys)])
    learner.apply(number)
    return scalars


def policy(*, seed: int = 0, double: bool = True, **settings: Any) -> Policy:
    """A random selection policy that reads embeddings of size EMBEDDING, or what is beside them."""
    config = policy_config(**settings)
    size = input_size(config.reads, EMBEDDING)
    module = build_policy(config, size, "elu", VOCABULARY)
    randomise(module, seed)
    return module.double() if double else module


def sentences(*lengths: int, seed: int = 0, width: int | None = None) -> tuple[Tensor, Tensor]:
    """Random token ids [M, N] of the given lengths, and which of them are real."""
    draw = np.random.default_rng(seed)
    valid = np.arange(width or max(lengths)) < np.array(lengths)[:, None]
    tokens = np.where(valid, draw.integers(1, WORDS, valid.shape), 0)
    return torch.from_numpy(tokens), torch.from_numpy(valid)


def inputs(*lengths: int, seed: int = 0) -> PolicyInputs:
    """Random word vectors, not zero on padding."""
    _, valid = sentences(*lengths, seed=seed)
    draw = np.random.default_rng(seed).normal(size=(*valid.shape, EMBEDDING))
    return of_vectors(torch.from_numpy(draw), valid)


def of_vectors(vectors: Tensor, valid: Tensor) -> PolicyInputs:
    """What is read of sentences whose words do not matter."""
    tokens = valid.long()
    return PolicyInputs(vectors, valid, tokens, ENDS(tokens))


def keys(update: int, examples: int, first: int = 0) -> Tensor:
    """Dropout keys of consecutive rows in one update, int64 [examples]."""
    rows = np.arange(first, first + examples)
    return torch.from_numpy(example_keys(0, "dropout", update, rows))


def selection(valid: Tensor, probability: float = 0.5, seed: int = 0) -> Tensor:
    """A random selection [M, 2, N] of real tokens."""
    draw = np.random.default_rng(seed).random((valid.shape[0], 2, valid.shape[1]))
    return torch.from_numpy(draw < probability) & valid[:, None]


def pairs(
    *lengths: tuple[int, int], seed: int = 0, share: float = 0.5
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Tokens, valid and selections of sentence pairs of the given lengths."""
    slots = [sentences(*side, seed=seed + k) for k, side in enumerate(zip(*lengths, strict=True))]
    selections = [selection(v, share, seed + k) for k, (_, v) in enumerate(slots)]
    return [t for t, _ in slots], [v for _, v in slots], selections
