"""Using a finished run: score a split with a checkpoint, show which words of a text it selects.

Legend: B = 1 example, S sentences, N_s tokens of slot s, C classes.
"""

from __future__ import annotations

__all__ = ["Explanation", "MarkedSentence", "explain", "open_with_data", "score_run"]

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rss_rl.config import RunConfig
from rss_rl.data.sources import Text
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.data.tokens import Tokens
from rss_rl.data.vocabulary import UNKNOWN
from rss_rl.errors import DataError
from rss_rl.policies.deciding import decide
from rss_rl.runtime.checkpoint import load_checkpoint
from rss_rl.runtime.choosing import mark_passage
from rss_rl.runtime.device import find_device
from rss_rl.runtime.evaluation import Mode, evaluate
from rss_rl.runtime.reward import build_reward
from rss_rl.runtime.run import open_models
from rss_rl.runtime.snapshot import Models
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array


@dataclass(frozen=True)
class MarkedSentence:
    """One sentence as the model sees it.

    words          as written
    known          bool [N], False where the vocabulary does not have the word
    selection      bool [2, N], heads and dependents
    probabilities  float32 [2, N] of selecting each; None where the run has no policy
    """

    words: tuple[str, ...]
    known: Array
    selection: Array
    probabilities: Array | None


@dataclass(frozen=True)
class Explanation:
    """What a model predicts for one example, and from which words.

    prediction           name of a class, sentence or candidate, or a score; None where the run has
                         no trained classifier
    class_probabilities  by name; None for a score, or without a prediction
    """

    sentences: tuple[MarkedSentence, ...]
    prediction: str | float | None
    class_probabilities: dict[str, float] | None


def explain(
    config: RunConfig,
    models: Models,
    inputs: Prepared,
    texts: Sequence[Text],
    *,
    sampled_seed: int | None = None,
) -> Explanation:
    """Select words of new texts and predict from the selection.

    Args:
        config, models, inputs: as `open_models` returns them, in evaluation mode and on the CPU.
        texts: one for each sentence slot; a tuple of words is not tokenised, except where labels
            are chosen from marks: see `mark_passage`.
        sampled_seed: draw the selection from this seed; None selects what has probability over
            one half.

    Raises:
        DataError: not as many texts as the task has sentences, or one without a word.
    """
    marked = None
    if inputs.labels.chooses:
        _check_number(inputs, texts)
        marked = mark_passage(inputs.labels, *texts)
        texts = marked.texts
    tokenised = _tokenise(inputs, texts)
    with torch.inference_mode():
        read = _select(config, models, inputs, tokenised, sampled_seed)
        if not config.predicts:
            return Explanation(read.sentences, None, None)
        marks = None if marked is None else torch.from_numpy(marked.marks)[None]
        logits = models.classifier(read.tokens, read.valid, read.selections, marks)  # [1, C]
        predicted = models.classifier.predict(logits)
    if inputs.labels.kind == "score":
        return Explanation(read.sentences, float(predicted), None)
    names = inputs.labels.names if marked is None else marked.names
    shares = dict(zip(names, torch.softmax(logits[0], -1).tolist(), strict=True))
    return Explanation(read.sentences, names[int(predicted)], shares)


class _Read(NamedTuple):
    """tokens, valid, selections: S x [1, ...], for a classifier; sentences: the same to show."""

    tokens: list[Tensor]
    valid: list[Tensor]
    selections: list[Tensor]
    sentences: tuple[MarkedSentence, ...]


def _select(
    config: RunConfig,
    models: Models,
    inputs: Prepared,
    tokenised: Sequence[Tokens],
    sampled_seed: int | None,
) -> _Read:
    selects = config.phases[-1].selection == "sampled"
    found = [inputs.vocabulary.ids(sentence.keys) for sentence in tokenised]  # S x [N_s]
    tokens = [torch.from_numpy(ids)[None] for ids in found]  # S x [1, N_s]
    valid = [torch.ones_like(ids, dtype=torch.bool) for ids in tokens]
    shown = models.shown(tokens, valid)
    selections, sentences = [], []
    for slot, (sentence, ids) in enumerate(zip(tokenised, found, strict=True)):
        vectors, mask = shown[slot], valid[slot]
        chances = None
        selection = mask[:, None].expand(-1, ROLES, -1)  # [1, 2, N]
        if selects:
            selection, likely = decide(models.policy, vectors, mask)
            chances = likely[0].float().numpy()
        if selects and sampled_seed is not None:
            uniforms = torch.from_numpy(_uniforms(sampled_seed, slot, len(ids)))
            selection = models.policy.sample(vectors, mask, uniforms).selection[0]
        selections.append(selection)
        bits = selection[0].numpy()
        sentences.append(MarkedSentence(sentence.words, ids != UNKNOWN, bits, chances))
    return _Read(tokens, valid, selections, tuple(sentences))


def _check_number(inputs: Prepared, texts: Sequence[Text]) -> None:
    if len(texts) != inputs.sentences:
        needed = "one text" if inputs.sentences == 1 else f"{inputs.sentences} texts"
        raise DataError(
            f"the run's task has {needed} an example, {len(texts)} given",
            remedy='Quote each text: "A man sleeps."',
        )


def _tokenise(inputs: Prepared, texts: Sequence[Text]) -> list[Tokens]:
    _check_number(inputs, texts)
    tokenised = [inputs.tokenizer(text) for text in texts]
    for place, sentence in enumerate(tokenised):
        if not sentence.words:
            raise DataError("there is no word in it", where=f"text {place + 1}")
    return tokenised


def _uniforms(seed: int, slot: int, width: int) -> Array:
    """float32 [1, 1, 2, N]."""
    return keyed_uniforms(stream_key(seed, "explain", slot), np.zeros(1, int), 1, ROLES, width)


def score_run(
    path: Path,
    split: str,
    modes: Iterable[Mode],
    *,
    which: str | int = "best",
    device: str | None = None,
) -> tuple[int, dict[str, dict[str, float]]]:
    """The step of a run's checkpoint and its metrics on a split under each mode.

    Args:
        which: `best`, `latest` or a step.
        device: to compute on; None for the one the run was trained on.

    Raises:
        RssError: no such run, checkpoint or split, or the data were prepared anew since.
    """
    config, models, prepared, place = open_with_data(path, which, device)
    examples = prepared.split(split)
    reward = build_reward(config, models, examples, prepared.vocabulary.words, place)
    metrics = evaluate(models, examples, config, modes, device=place, reward=reward)
    return load_checkpoint(path, which).step, metrics


def open_with_data(
    path: Path, which: str | int, device: str | None
) -> tuple[RunConfig, Models, Prepared, torch.device]:
    """A run's configuration, its models on the device to compute on, and the data it learnt from.

    Raises:
        RssError: as `score_run` says.
    """
    config, models, inputs = open_models(path, which)
    prepared = open_prepared(config.data)
    if prepared.manifest != inputs.manifest:
        raise DataError(
            "the data are not those the run was trained on",
            where=config.data,
            remedy="Prepare them as they were, or train again",
        )
    place = find_device(device or config.learner.device)
    models.classifier.to(place)
    models.policy.to(place)
    return config, models, prepared, place
