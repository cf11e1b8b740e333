"""Random passages with marks, questions and selections, and small models that choose from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import small
import torch
from model_configs import model_config
from torch import Tensor

from rss_rl.models.build import build_classifier
from rss_rl.models.dropout import keyed_dropout
from rss_rl.types import LabelSpec

SENTENCE, CANDIDATE = LabelSpec("sentence"), LabelSpec("candidate")
READERS = [(r, o) for r in ("stanford", "sequential") for o in ("entities", "pointer")]
ENTITIES = 6

Lengths = tuple[list[int], int]
"""Words of each sentence of a passage, and of the question."""

FEW: list[Lengths] = [([3, 2, 4], 4), ([5], 1), ([1, 1, 2, 6], 6), ([2, 3], 2)]


class Choices(NamedTuple):
    """tokens, valid, selections: 2 x [M, ...]; marks int64 [M, N_0]; labels int64 [M]."""

    tokens: list[Tensor]
    valid: list[Tensor]
    selections: list[Tensor]
    marks: Tensor
    labels: Tensor

    @property
    def inputs(self) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]:
        """What a classifier is called with."""
        return self.tokens, self.valid, self.selections, self.marks

    def part(self, rows: Any, widths: tuple[int, int] | None = None) -> Choices:
        """Some of the examples, cut to other widths."""
        ends = widths or tuple(t.shape[1] for t in self.tokens)
        return Choices(
            [t[rows, :n] for t, n in zip(self.tokens, ends, strict=True)],
            [v[rows, :n] for v, n in zip(self.valid, ends, strict=True)],
            [s[rows, :, :n] for s, n in zip(self.selections, ends, strict=True)],
            self.marks[rows, : ends[0]],
            self.labels[rows],
        )


def passages(lengths: list[Lengths] = FEW, *, seed: int = 0, share: float = 0.7) -> Choices:
    """Passages whose marks number their sentences."""
    sizes = [(sum(sentences), question) for sentences, question in lengths]
    tokens, valid, selections = small.pairs(*sizes, seed=seed, share=share)
    marks = np.full(tuple(tokens[0].shape), -1)
    for row, (sentences, _) in enumerate(lengths):
        numbers = np.repeat(np.arange(len(sentences)), sentences)
        marks[row, : len(numbers)] = numbers
    labels = np.random.default_rng(seed).integers(0, [len(s) for s, _ in lengths])
    return Choices(tokens, valid, selections, torch.from_numpy(marks), torch.from_numpy(labels))


def clozes(*lengths: tuple[int, int], seed: int = 0, share: float = 0.7) -> Choices:
    """Passages in which every second word or so is a candidate; a word has one number."""
    tokens, valid, selections = small.pairs(*lengths, seed=seed, share=share)
    marks = np.full(tuple(tokens[0].shape), -1)
    for row, (size, _) in enumerate(lengths):
        numbers: dict[int, int] = {}
        for place, word in enumerate(tokens[0][row, :size].tolist()):
            if (word % 2 or place == 0) and (word in numbers or len(numbers) < ENTITIES):
                marks[row, place] = numbers.setdefault(word, len(numbers))
    labels = np.random.default_rng(seed).integers(0, np.maximum(1, marks.max(1, initial=-1) + 1))
    return Choices(tokens, valid, selections, torch.from_numpy(marks), torch.from_numpy(labels))


def model(labels: LabelSpec, *, seed: int = 0, double: bool = True, **settings: Any) -> Any:
    """A random passage classifier, or cloze reader with options `cloze`, in evaluation mode."""
    vectors = np.random.default_rng(seed).normal(size=(small.WORDS, small.EMBEDDING))
    vectors[0] = 0
    chosen = {"hidden": small.HIDDEN, "dropout": 0.0} | settings
    if labels.kind == "candidate":
        options = {"hidden": 3, "entities": ENTITIES} | chosen.pop("cloze", {})
        chosen["classifier"] = {"name": "cloze", "options": options}
    config = model_config(**chosen)
    built = build_classifier(config, labels, 2, vectors.astype(np.float32), small.TRAINABLE)
    table = built.embedding.trainable.detach().clone()
    small.randomise(built, seed)
    built.embedding.trainable.data.copy_(table)
    return (built.double() if double else built).eval()


def gradients(model: Any, drawn: Choices, keys: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """Logits, and the gradient of the summed loss by each parameter, zeros where there is none."""
    model.zero_grad()
    with keyed_dropout(keys):
        logits = model(*drawn.inputs)
    model.losses(logits, drawn.labels).sum().backward()
    return logits.detach(), [
        torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()
    ]


def check_alone(
    model: Any, drawn: Choices, widths: Sequence[tuple[int, int]], dropout: float
) -> None:
    """Each example alone, of these widths, gives what it gives in the batch; gradients add up."""
    keys = small.keys(3, len(widths)) if dropout else None
    together, summed = gradients(model, drawn, keys)
    total = [torch.zeros_like(g) for g in summed]
    for row, own in enumerate(widths):
        alone = drawn.part(slice(row, row + 1), own)
        logits, parts = gradients(model, alone, None if keys is None else keys[row : row + 1])
        count = logits.shape[1]
        torch.testing.assert_close(logits[0], together[row, :count], rtol=1e-9, atol=1e-10)
        total = [a + b for a, b in zip(total, parts, strict=True)]
    for one, other in zip(total, summed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)
    if dropout:
        assert not torch.allclose(together[:, 0], model.eval()(*drawn.inputs)[:, 0])
