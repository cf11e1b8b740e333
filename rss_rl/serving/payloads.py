"""What is asked for and answered as JSON, its limits, and the document that describes both.

Legend: an example is a text, or two where the task has two.
"""

from __future__ import annotations

__all__ = ["Answer", "Ask", "Asked", "Limits", "Problem", "Runs", "openapi", "parse_ask"]

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.json_schema import models_json_schema

from rss_rl.version import VERSION

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
_SHOWN = 80
"""Characters shown of a name that is in no schema."""


@dataclass(frozen=True)
class Limits:
    """What a request may cost.

    body_bytes  of a request
    examples    of a request
    words       of a text
    wait_s      for other requests to be answered, and for the body to arrive, in seconds
    waiting     requests that wait at a time
    """

    body_bytes: int = 1 << 20
    examples: int = 32
    words: int = 2000
    wait_s: float = 10.0
    waiting: int = 16

    @property
    def characters(self) -> int:
        """Of a text: many times those of so many words."""
        return 20 * self.words


class Problem(Exception):
    """A request that is not answered.

    Args:
        status: of HTTP.
        message: what is wrong, and what to do about it.
        field: of the body, such as `examples.0.share`; empty where it is about none.
    """

    def __init__(self, status: int, message: str, field: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.field = status, message, field


class Asked(BaseModel):
    """One example, and which of its words to keep: without `share` and `keep` the policy's own."""

    model_config = _STRICT
    texts: Annotated[
        list[str],
        Field(min_length=1, max_length=2, description="A text; two for a pair or a question."),
    ]
    share: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="Keep this share of each text's words, those of highest score, at least 1.",
        ),
    ] = None
    keep: Annotated[
        list[list[bool]] | None,
        Field(description="For each text, whether each of its words is kept."),
    ] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.share is not None and self.keep is not None:
            raise ValueError("give either share or keep")
        return self


class Ask(BaseModel):
    """Body of `POST /predict`."""

    model_config = _STRICT
    examples: Annotated[list[Asked], Field(min_length=1)]
    run: Annotated[
        str | None, Field(description="Name of a run, see `GET /runs`. Default: the first.")
    ] = None


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Word(_Given):
    """A word of a text; start and end are characters of the text, where the words are its own."""

    word: str
    known: Annotated[bool, Field(description="Whether the vocabulary has it.")]
    head: Annotated[bool, Field(description="Kept, and looks at others.")]
    dependent: Annotated[bool, Field(description="Kept, and is looked at.")]
    head_probability: Annotated[
        float | None, Field(description="Of the policy; absent where the run has none.")
    ] = None
    dependent_probability: float | None = None
    start: int | None = None
    end: int | None = None


class Answered(_Given):
    """One example; what `rss-rl select --json` prints."""

    prediction: Annotated[
        str | float | None,
        Field(description="A class, sentence or candidate, or a score; null without classifier."),
    ]
    class_probabilities: Annotated[
        dict[str, float] | None, Field(description="By name; null for a score.")
    ]
    kept: Annotated[float, Field(description="Share of all words that is kept, 0 to 1.")]
    sentences: Annotated[list[list[Word]], Field(description="The words of each text.")]


class Answer(_Given):
    """Answer of `POST /predict`."""

    run: str
    examples: list[Answered]


class RunShown(_Given):
    """A run that is served."""

    name: str
    about: str
    kind: Annotated[str, Field(description="classes, score, sentence or candidate.")]
    texts: Annotated[list[str], Field(description="What each text of an example is called.")]
    selects: Annotated[bool, Field(description="Whether it has a policy, and words scores.")]
    low: Annotated[float, Field(description="Least score, where it predicts one.")]
    high: float


class Runs(_Given):
    """Answer of `GET /runs`."""

    runs: list[RunShown]


class Health(_Given):
    """Answer of `GET /health`."""

    status: str


class Refusal(_Given):
    """Answer to a request that is refused."""

    error: str
    field: Annotated[str, Field(description="Of the body, such as examples.0.share, or empty.")]


def parse_ask(body: bytes, limits: Limits) -> Ask:
    """The body of a request.

    Raises:
        Problem: 422, with the field; 413 where there are too many examples.
    """
    try:
        ask = Ask.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part)[:_SHOWN] for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise Problem(422, f"{field or 'the body'}: {message}", field) from None
    if len(ask.examples) > limits.examples:
        raise Problem(
            413, f"{len(ask.examples)} examples, at most {limits.examples} at a time", "examples"
        )
    return ask


def openapi(limits: Limits) -> dict[str, Any]:
    """The document of the interface, OpenAPI 3.1."""
    models = (Ask, Answer, Runs, Health, Refusal)
    prefix = "#/components/schemas/{model}"
    _, schemas = models_json_schema([(m, "validation") for m in models], ref_template=prefix)
    refusals = {
        "401": "A token is needed: Authorization: Bearer TOKEN.",
        "408": "The body does not arrive.",
        "413": f"More than {limits.body_bytes} bytes, {limits.examples} examples or"
        f" {limits.words} words a text.",
        "415": "The body is not application/json.",
        "422": "A field is wrong; the answer names it.",
        "503": f"Others were being answered for {limits.wait_s:g} seconds; try again.",
    }
    predict = _operation("Select words and predict from them.", Answer)
    predict["requestBody"] = {"required": True, "content": _json_of(Ask)}
    predict["responses"] |= {
        status: {"description": text, "content": _json_of(Refusal)}
        for status, text in refusals.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "rss-rl serve", "version": VERSION},
        "paths": {
            "/predict": {"post": predict},
            "/runs": {"get": _operation("The runs that are served.", Runs)},
            "/health": {"get": _operation("Whether the server answers; no token needed.", Health)},
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(summary: str, answer: type[BaseModel]) -> dict[str, Any]:
    good = {"description": answer.__doc__ or "", "content": _json_of(answer)}
    return {"summary": summary, "responses": {"200": good}}


def _json_of(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
