"""JSON requests and their answers: fields, limits, and what a model answers.

Independent of the web framework.

Legend: an example is one text, or two for a task on pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rss_rl.errors import ConfigError, DataError, ResourceError, RssError
from rss_rl.inference.model import Encoded, Model
from rss_rl.pages.explanation import text_titles
from rss_rl.reading.trained_runs import data_of
from rss_rl.types import Array

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
_EXAMPLES, _EXAMPLE_WORDS = 3, 40
_SHOWN = 80
"""Unknown field names are truncated to this many characters in messages."""


@dataclass(frozen=True)
class Limits:
    """Request limits.

    body_bytes  per request
    examples    per request
    words       per text
    wait_s      seconds to wait in the queue, and for the body to arrive
    waiting     longest queue of requests
    """

    body_bytes: int = 1 << 20
    examples: int = 32
    words: int = 2000
    wait_s: float = 10.0
    waiting: int = 16

    @property
    def characters(self) -> int:
        """Longest text, in characters: far more than `words` words need."""
        return 20 * self.words


class Problem(Exception):
    """A request that is refused.

    Args:
        status: HTTP status.
        message: what is wrong, and what to do about it.
        field: path in the body, such as `examples.0.share`; empty if no field is at fault.
    """

    def __init__(self, status: int, message: str, field: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.field = status, message, field


class Example(BaseModel):
    """One example and the words to keep: by default, those that the policy selects."""

    model_config = _STRICT
    texts: list[str] = Field(min_length=1, max_length=2)
    """A text; two for a pair."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Keep this share of each text's words by score, and at least one word."""
    keep: list[list[bool]] | None = None
    """For each text, whether each of its words is kept."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.share is not None and self.keep is not None:
            raise ValueError("give either share or keep")
        return self


class Body(BaseModel):
    """Body of `POST /predict`."""

    model_config = _STRICT
    examples: list[Example] = Field(min_length=1)


def parse_body(body: bytes, limits: Limits) -> Body:
    """Parse the body of a request.

    Raises:
        Problem: 422, with the field; 413, too many examples.
    """
    try:
        parsed = Body.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part)[:_SHOWN] for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise Problem(422, f"{field or 'the body'}: {message}", field) from None
    if len(parsed.examples) > limits.examples:
        raise Problem(
            413, f"{len(parsed.examples)} examples, at most {limits.examples} at a time", "examples"
        )
    return parsed


def model_shown(model: Model, name: str, examples: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Answer of `GET /model`; examples: to try, as `data_examples` finds them."""
    return {
        "name": name,
        "about": model.about,
        "examples": examples,
        "kind": model.labels.kind,
        "texts": text_titles(model.inputs.sentences),
        "selects": model.selects,
        "low": model.labels.low,
        "high": model.labels.high,
    }


def data_examples(model: Model) -> list[list[str]]:
    """The first words of the texts of a few examples of a run's data, where these are here."""
    if not model.config.data:  # an export
        return []
    try:
        split = data_of(model.config, model.inputs).split("dev")
    except RssError:
        return []
    rows = range(min(_EXAMPLES, len(split)))
    return [[" ".join(words[:_EXAMPLE_WORDS]) for words in split.words(row)] for row in rows]


@dataclass(eq=False)
class Pending:
    """An example that waits for its turn.

    field    its path in the request body
    taken    its turn has come
    outcome  its selection and prediction, as `rss-rl select --json` prints them; or an error
    """

    example: Example
    field: str
    taken: bool = False
    outcome: dict[str, Any] | Exception | None = None

    def result(self) -> dict[str, Any]:
        """The outcome.

        Raises:
            Problem: 422 or 413, with the field; 503, not enough memory.
        """
        if isinstance(self.outcome, ResourceError):
            raise Problem(503, str(self.outcome), self.field) from self.outcome
        if isinstance(self.outcome, Exception):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


def answer_examples(model: Model, pending: Sequence[Pending], limits: Limits) -> None:
    """Set the outcome of each; those that leave the words to the policy are read together."""
    plain: dict[Pending, Encoded] = {}
    for one in pending:
        try:
            encoded, keep = _encode(model, one.example, one.field, limits)
            if one.example.share is None and keep is None:
                plain[one] = encoded
            else:
                one.outcome = _read(model, encoded, one.example.share, keep, one.field)
        except Exception as error:
            one.outcome = error
    try:
        for one, explanation in zip(plain, model.read_all([*plain.values()]), strict=True):
            one.outcome = explanation.to_dict()
    except Exception as error:
        for one in plain:
            one.outcome = error


def _encode(
    model: Model, example: Example, field: str, limits: Limits
) -> tuple[Encoded, list[Array] | None]:
    """An example as model input, and which words to keep.

    Raises:
        Problem: 422 or 413, with the field.
    """
    for number, text in enumerate(example.texts):  # before tokenisation, which can take seconds
        _check_length(len(text), limits.characters, "characters", f"{field}.texts.{number}")
    try:
        encoded = model.encode(example.texts, f"{field}.texts")
    except DataError as error:
        raise Problem(422, str(error), f"{field}.texts") from error
    for number, ids in enumerate(encoded.ids):
        _check_length(len(ids), limits.words, "words", f"{field}.texts.{number}")
    if example.keep is None:
        return encoded, None
    _check_keep(example.keep, encoded, f"{field}.keep")
    return encoded, [np.array([bits], bool) for bits in example.keep]


def _read(
    model: Model, encoded: Encoded, share: float | None, keep: list[Array] | None, field: str
) -> dict[str, Any]:
    try:
        return model.read([encoded], share, keep)[0].to_dict()
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
