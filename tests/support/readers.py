"""Random models that read texts, without a run and without data on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from model_configs import model_tree
from small import EMBEDDING, HIDDEN, SCORE, TRAINABLE, WORDS, policy, randomise

from rss_rl.config import ModelConfig, Reads, RunConfig
from rss_rl.data.store import Prepared
from rss_rl.data.tokens import Tokenizer
from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.inference.model import Model
from rss_rl.models.build import build_classifier
from rss_rl.reading.models import Models
from rss_rl.types import LabelSpec

CLASSES = LabelSpec("classes", ("no", "maybe", "yes"))
TASKS: dict[str, tuple[LabelSpec, int, tuple[str, ...]]] = {
    "classes": (CLASSES, 1, ("w3 w9 w4 w8 w5",)),
    "pair": (CLASSES, 2, ("w3 w9 w4", "w7 w5 zyx w6")),
    "score": (SCORE, 2, ("w3 w9 w4", "w7 w5 w6 w11")),
}
"""Labels, texts of an example, and an example, of each kind of task."""


REVIEWS = ("the warm film with a scene", "dull", "one of the cold , unseen films .")
"""Texts for a run on `tiny_runs.tiny_source`; some words are none of its vocabulary."""


@dataclass(frozen=True)
class Inputs:
    """What a model needs of a prepared dataset."""

    labels: LabelSpec
    sentences: int
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    manifest: SimpleNamespace
    subwords: None = None
    """Words have no label weights."""


def reader(
    task: str,
    *,
    selects: bool = True,
    reads: Reads = "sentence",
    seed: int = 0,
    by: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Model:
    """A random model for one of TASKS; its words are w2, w3 and so on.

    Args:
        by: which policy selects, see `small.policy`.
    """
    labels, texts, _ = TASKS[task]
    vectors = np.random.default_rng(seed).normal(size=(WORDS, EMBEDDING)).astype(np.float32)
    vectors[0] = 0
    given = model_tree(**{"hidden": HIDDEN, "dropout": 0.0} | settings)
    torch.manual_seed(seed)
    words = (*SPECIAL_WORDS, *(f"w{number}" for number in range(2, WORDS)))
    config = ModelConfig(**given)
    classifier = build_classifier(config, labels, texts, vectors, TRAINABLE, words=words)
    for number, part in enumerate(child for name, child in classifier.named_children()):
        if part is not classifier.embedding:
            randomise(part, seed + number)
    phase = {"name": "all", "supervised": True, "steps": 1}
    tree = {
        "data": "none",
        "model": given,
        "phases": [phase | {"selection": "sampled" if selects else "all"}],
    }
    splits = {"train": SimpleNamespace(rows=7)}
    manifest = SimpleNamespace(name="made", labels=labels, splits=splits, columns=())
    inputs = Inputs(labels, texts, Tokenizer(), Vocabulary(words, TRAINABLE), manifest)
    selector = policy(double=False, seed=seed, reads=reads, **(by or {}))
    models = Models(classifier.eval(), selector, reads)
    return Model(RunConfig.model_validate(tree), models, cast(Prepared, inputs))
