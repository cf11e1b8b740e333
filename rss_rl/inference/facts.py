"""Facts about one example: its selection, and the effect of flipping each word.

Legend: B examples, S sentences per example, N_s tokens in slot s, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rss_rl.inference.explanation import Explanation
from rss_rl.inference.model import Chosen, Encoded, Model
from rss_rl.reading.scan import Scanned
from rss_rl.types import Array

_TOKENS_AT_A_TIME = 1 << 13
_MOST_FLIPS = 200
"""Words of a text that are flipped."""


@dataclass(frozen=True)
class Facts:
    """One example.

    explanation  words, selection, probabilities, prediction
    outcome      float32 [C], class probabilities; for a score task [1], the score
    flips        S x float32 [N_s, C or 1], the outcome with one word forced in (as head and
                 dependent) or, if it was kept, out; NaN if not computed
    """

    explanation: Explanation
    outcome: Array
    flips: tuple[Array, ...]


def gather_facts(
    model: Model, encoded: Encoded, progress: Callable[[int], None] = lambda done: None
) -> Facts:
    """Evaluate one example, and again with each of its words flipped.

    Of a long text kept words are flipped first, then the most probable ones.

    Args:
        encoded: as `model.encode` returns it.
        progress: called with the number of words flipped so far in the current text.
    """
    (explanation,) = model.read([encoded])
    chosen = model.choose([encoded])
    outcome = _outcomes(model, chosen)[0].numpy()
    slots = range(len(encoded.ids))

    def flips(slot: int) -> Array:
        outcomes = np.full((len(encoded.ids[slot]), len(outcome)), np.nan, np.float32)
        step = max(1, _TOKENS_AT_A_TIME // sum(map(len, encoded.ids)))
        for done, indices in enumerate(torch.split(_flip_first(chosen, slot), step)):
            changed = _flipped(model, chosen, slot, indices)
            outcomes[indices.numpy()] = _outcomes(model, changed).numpy()
            progress(done * step + len(indices))
        return outcomes

    return Facts(explanation, outcome, tuple(map(flips, slots)))


def _outcomes(model: Model, chosen: Chosen) -> Tensor:
    """[B, C or 1]."""
    logits = model.logits(chosen)
    if model.labels.kind == "score":
        return model.models.classifier.predict(logits).float()[:, None]
    return model.probabilities(logits)


def _flip_first(chosen: Chosen, slot: int) -> Tensor:
    """Positions of the words to flip, int64 [at most `_MOST_FLIPS`]."""
    worth = chosen.selections[slot][0].any(0).float()  # [N]
    if chosen.probabilities is not None:
        worth = worth + chosen.probabilities[slot][0].amax(0)
    return torch.argsort(worth, descending=True, stable=True)[:_MOST_FLIPS].sort().values


def _flipped(model: Model, chosen: Chosen, slot: int, indices: Tensor) -> Chosen:
    """One copy of the example per index, with that word of `slot` flipped."""
    times = len(indices)
    batch = chosen.scanned.batch.repeat(times)
    selections = [bits.expand(times, *bits.shape[1:]) for bits in chosen.selections]
    changed = selections[slot].clone()  # [P, 2, N]
    rows = torch.arange(times)
    changed[rows, :, indices] = ~changed[rows, :, indices].any(1, keepdim=True)
    selections[slot] = changed
    return Chosen(Scanned.of(model.models, batch, model.device), selections, None)
