"""Runs models on validated requests; independent of the web framework."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from rss_rl.errors import ConfigError, DataError
from rss_rl.inference.explanation import Explanation
from rss_rl.inference.kept_words import keep_share, keep_words
from rss_rl.inference.model import Encoded, Model
from rss_rl.pages.explanation import about, text_titles
from rss_rl.serving.payloads import Ask, Asked, Limits, Problem


def runs_shown(models: Mapping[str, Model]) -> dict[str, Any]:
    """Answer of `GET /runs`."""
    return {"runs": [_shown(name, model) for name, model in models.items()]}


def _shown(name: str, model: Model) -> dict[str, Any]:
    labels = model.labels
    return {
        "name": name,
        "about": about(model),
        "kind": labels.kind,
        "texts": text_titles(labels, model.inputs.sentences),
        "selects": model.selects,
        "low": labels.low,
        "high": labels.high,
    }


def run_asked(models: Mapping[str, Model], ask: Ask) -> str:
    """The name of the run to use: the requested one, or the first.

    Raises:
        Problem: 422, no run has this name.
    """
    name = next(iter(models)) if ask.run is None else ask.run
    if name not in models:
        raise Problem(422, f"run: no such run; available are {[*models]}", "run")
    return name


def answer_example(model: Model, asked: Asked, field: str, limits: Limits) -> dict[str, Any]:
    """Selection and prediction for one example, as a dict of `Answered`.

    Args:
        field: path of the example in the request body.

    Raises:
        Problem: 422 or 413, with the field.
        ResourceError: not enough memory.
    """
    return _explain(model, asked, field, limits).to_dict()


def _explain(model: Model, asked: Asked, field: str, limits: Limits) -> Explanation:
    for number, text in enumerate(asked.texts):
        if len(text) > limits.characters:  # before tokenisation, which can take seconds
            place = f"{field}.texts.{number}"
            what = f"{len(text):,} characters, at most {limits.characters:,}"
            raise Problem(413, f"{place}: {what}", place)
    try:
        encoded = model.encode(asked.texts, f"{field}.texts")
    except DataError as error:
        raise Problem(422, str(error), f"{field}.texts") from error
    for number, ids in enumerate(encoded.ids):
        if len(ids) > limits.words:
            place = f"{field}.texts.{number}"
            raise Problem(413, f"{place}: {len(ids):,} words, at most {limits.words:,}", place)
    if asked.keep is not None:
        _check_keep(asked.keep, encoded, f"{field}.keep")
        masks = [np.array([bits], bool) for bits in asked.keep]
        return model.read([encoded], change=partial(keep_words, keep=masks))[0]
    if asked.share is not None:
        try:
            return model.read([encoded], change=partial(keep_share, share=asked.share))[0]
        except ConfigError as error:
            raise Problem(422, f"{field}.share: {error}", f"{field}.share") from error
    return model.read([encoded])[0]


def _check_keep(keep: list[list[bool]], encoded: Encoded, field: str) -> None:
    if len(keep) != len(encoded.ids):
        message = f"{field}: {len(keep)} lists for {len(encoded.ids)} text(s)"
        raise Problem(422, message, field)
    for number, (bits, ids) in enumerate(zip(keep, encoded.ids, strict=True)):
        if len(bits) != len(ids):
            place = f"{field}.{number}"
            message = f"{place}: {len(bits)} values for {len(ids)} words"
            raise Problem(422, message, place)
