"""Somebody's classifier of texts as reward model: which words does it need for what it says?

    score = log p(y | the selected words), y the label of the data or what it says of the whole text

The classifier is frozen and asked for probabilities alone. A policy that learns from it explains it
for a whole corpus: new texts are then explained by the policy's one pass.

Legend: M scored selections, N tokens, C classes.
"""

from __future__ import annotations

__all__ = ["BLACKBOX", "BlackboxReward"]

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rss_rl.components import Component, Folder, Options
from rss_rl.errors import ConfigError
from rss_rl.pretrained.folder import Pretrained, open_pretrained
from rss_rl.pretrained.reader import WordReader
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import Array, Batch


class BlackboxOptions(Options):
    """Of a classifier of texts."""

    pretrained: Folder = Field(
        description="Folder of an AutoModelForSequenceClassification with its tokenizer, or its"
        " name on the Hugging Face hub."
    )
    target: Literal["label", "prediction"] = Field(
        default="prediction",
        description="The class to be told from the selected words: that of the data, or the one"
        " that the classifier predicts from the whole text.",
    )
    absent: Literal["remove", "mask"] = Field(
        default="remove",
        description="Words that are not selected: left out, or replaced by the mask token.",
    )


class BlackboxReward:
    """See the module.

    Args:
        pretrained: the classifier.
        setup: of the run's task.

    Raises:
        ConfigError: it is not for this task.
    """

    def __init__(
        self, pretrained: Pretrained, setup: RewardSetup, options: BlackboxOptions
    ) -> None:
        if setup.sentences != 1 or setup.labels.kind != "classes" or setup.words is None:
            raise ConfigError(
                "a black box explains classes of single texts",
                where="reward.model",
                remedy="Use data with one text an example and labels that are classes",
            )
        if options.absent == "mask" and pretrained.tokenizer.mask_token_id is None:
            raise ConfigError(
                "its tokenizer has no mask token", where=pretrained.name, remedy="Use absent=remove"
            )
        self._device = torch.device(setup.device)
        reader = WordReader(pretrained, pretrained.classifier(), setup.words)
        self._reader = reader.eval().requires_grad_(False).to(self._device)
        self._options = options
        self._classes = _classes(pretrained, setup.labels.names) if self._by_label else None

    @property
    def _by_label(self) -> bool:
        return self._options.target == "label"

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        """`log_likelihood`, float32 [M] in nats; see `RewardModel.score`."""
        (words,), (valid,), (chosen,) = batch.tokens, batch.valid, selections
        with torch.inference_mode():
            logits = self._logits(words, valid, chosen.any(1) & valid)
            target = self._target(batch)
            picked = torch.log_softmax(logits, -1).gather(1, target[:, None])[:, 0]
            found: Array = picked.cpu().numpy()
        return {"log_likelihood": found}

    def _target(self, batch: Batch) -> Tensor:
        """Class of each example as the classifier numbers them, int64 [M]."""
        if self._classes is not None:
            return torch.from_numpy(self._classes[batch.labels]).to(self._device)
        # Examples come once for each of their selections; the whole text is read once.
        _, first, again = np.unique(batch.rows, return_index=True, return_inverse=True)
        words, valid = batch.tokens[0][first], batch.valid[0][first]
        whole = self._logits(words, valid, valid).argmax(-1)
        return whole[torch.from_numpy(again).to(self._device)]

    def _logits(self, words: Array, valid: Array, kept: Array) -> Tensor:
        """[M, C]."""
        read = kept if self._options.absent == "remove" else valid
        text, _ = read.nonzero()
        ids, owner, shown = (
            torch.from_numpy(each).to(self._device) for each in (words[read], text, kept[read])
        )
        return self._reader.class_logits(ids, owner, len(words), shown)


def _classes(pretrained: Pretrained, names: Sequence[str]) -> Array:
    """Number that the classifier gives each class of the data, int64 [classes].

    Raises:
        ConfigError: it has no class of such a name.
    """
    theirs = {str(name).lower(): int(i) for i, name in pretrained.config.id2label.items()}
    lacking = [name for name in names if name.lower() not in theirs]
    if lacking:
        raise ConfigError(
            f"has no class '{lacking[0]:.100}' of the data; its classes: {', '.join(theirs)}",
            where=pretrained.name,
            remedy="Set id2label in its config.json, or use reward.model.options.target=prediction",
        )
    return np.array([theirs[name.lower()] for name in names], dtype=np.int64)


def _build(setup: RewardSetup, options: BlackboxOptions) -> BlackboxReward:
    return BlackboxReward(open_pretrained(options.pretrained), setup, options)


BLACKBOX = Component(
    kind="reward_model",
    name="blackbox",
    help="A pretrained classifier of texts, frozen: the policy learns which words it needs.",
    build=_build,
    options=BlackboxOptions,
    capabilities=frozenset({"explains"}),
    source="Chen et al., Learning to Explain, ICML 2018",
)
