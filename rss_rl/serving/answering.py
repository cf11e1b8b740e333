"""Runs a model on validated requests; independent of the web framework."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rss_rl.errors import ConfigError, DataError
from rss_rl.inference.model import Encoded, Model, keep_share, keep_words
from rss_rl.pages.explanation import about, text_titles
from rss_rl.serving.payloads import Asked, Limits, Problem


def model_shown(model: Model, name: str) -> dict[str, Any]:
    """Answer of `GET /model`."""
    return {
        "name": name,
        "about": about(model),
        "kind": model.labels.kind,
        "texts": text_titles(model.labels, model.inputs.sentences),
        "selects": model.selects,
        "low": model.labels.low,
        "high": model.labels.high,
    }


def answer_example(model: Model, asked: Asked, field: str, limits: Limits) -> dict[str, Any]:
    """Selection and prediction for one example, as a dict of `Answered`.

    Args:
        field: path of the example in the request body.

    Raises:
        Problem: 422 or 413, with the field.
        ResourceError: not enough memory.
    """
    for number, text in enumerate(asked.texts):  # before tokenisation, which can take seconds
        _check_length(len(text), limits.characters, "characters", f"{field}.texts.{number}")
    try:
        encoded = model.encode(asked.texts, f"{field}.texts")
    except DataError as error:
        raise Problem(422, str(error), f"{field}.texts") from error
    for number, ids in enumerate(encoded.ids):
        _check_length(len(ids), limits.words, "words", f"{field}.texts.{number}")
    change: dict[str, Any] = {}
    if asked.keep is not None:
        _check_keep(asked.keep, encoded, f"{field}.keep")
        masks = [np.array([bits], bool) for bits in asked.keep]
        change["change"] = partial(keep_words, keep=masks)
    if asked.share is not None:
        change["change"] = partial(keep_share, share=asked.share)
    try:
        return model.read([encoded], **change)[0].to_dict()
    except ConfigError as error:
        raise Problem(422, f"{field}.share: {error}", f"{field}.share") from error


def _check_length(length: int, most: int, unit: str, field: str) -> None:
    if length > most:
        raise Problem(413, f"{field}: {length:,} {unit}, at most {most:,}", field)


def _check_keep(keep: list[list[bool]], encoded: Encoded, field: str) -> None:
    if len(keep) != len(encoded.ids):
        message = f"{field}: {len(keep)} lists for {len(encoded.ids)} text(s)"
        raise Problem(422, message, field)
    for number, (bits, ids) in enumerate(zip(keep, encoded.ids, strict=True)):
        if len(bits) != len(ids):
            place = f"{field}.{number}"
            raise Problem(422, f"{place}: {len(bits)} values for {len(ids)} words", place)
