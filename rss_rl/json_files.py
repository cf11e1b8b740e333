"""Our own JSON files: read strictly, written so that they read back equal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from rss_rl.durable import plain_bytes
from rss_rl.errors import CheckpointError, RssError

MAX_JSON_BYTES = 64 * 2**20
"""A larger JSON file is not one of ours: refuse it before it fills the memory."""


def canonical_json(value: object, where: str) -> str:
    """`value` as JSON text that reads back equal, keys sorted.

    Raises:
        CheckpointError: it would not read back equal (NaN, an infinity, a tuple, a key that is not
            a string, an array).
    """
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
        if json.loads(text) == value:
            return text
        what = "a tuple, or a key that is not a string"
    except (TypeError, ValueError, RecursionError) as error:
        what = str(error)
    raise CheckpointError(
        f"the state would not read back equal from JSON: {what}",
        where=where,
        remedy="Keep plain dicts, lists, strings, finite numbers, booleans and None in a state",
    )


def without_non_finite(value: Any) -> Any:
    """`value` with None in place of NaN and infinities, which JSON cannot represent."""
    if isinstance(value, Mapping):
        return {key: without_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def first_fault(error: Exception) -> str:
    """The error in one line; of a Pydantic error, the first key and what is wrong with it."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


def json_object(content: bytes) -> dict[str, Any]:
    """The JSON object in untrusted `content`; an empty one if it holds anything else."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_record(path: Path, version: int, remedy: str) -> dict[str, Any]:
    """As `read_json`; the object's `schema_version` must be `version`."""
    record = read_json(path, remedy)
    written = record.get("schema_version")
    if type(written) is not int or written != version:
        raise CheckpointError(
            f"schema version {written!r:.50}, this program reads {version}",
            where=str(path),
            remedy="Use the version of rss-rl that wrote it",
        )
    return record


def read_json(path: Path, remedy: str, kind: type[RssError] = CheckpointError) -> dict[str, Any]:
    """The JSON object in `path`, strictly: no NaN, no infinity, no other top-level value.

    Raises:
        RssError: of the given kind: missing, unreadable, too large or not such an object.
    """
    try:
        value = json.loads(plain_bytes(path, MAX_JSON_BYTES), parse_constant=_refuse_constant)
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
    except FileNotFoundError as error:
        raise kind("missing", where=str(path), remedy=remedy) from error
    except (OSError, ValueError, RecursionError) as error:
        raise kind(f"unreadable: {error}", where=str(path), remedy=remedy) from error
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
