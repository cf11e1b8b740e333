"""Our own JSON files: read strictly, written so that they read back equal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from rss_rl.durable import plain_bytes
from rss_rl.errors import CheckpointError

MAX_JSON_BYTES = 64 * 2**20
"""A larger JSON file is not one of ours: refuse it before it fills the memory."""


def canonical_json(value: object, where: str) -> str:
    """`value` as JSON text that reads back equal, keys sorted.

    Raises:
        CheckpointError: a value in it would not read back equal (NaN, an infinity, a tuple, a key
            that is not a string, an array); names its path.
    """
    try:
        _check_json(value, "state", where)
        return json.dumps(value, sort_keys=True, allow_nan=False)
    except RecursionError as error:
        raise _not_json("state is nested too deeply", where) from error


def _check_json(value: object, path: str, where: str) -> None:
    """Raise for the first value that JSON cannot represent, naming its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                raise _not_json(f"{path} has the key {key!r}, which is not a string", where)
            _check_json(item, f"{path}.{key}", where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_json(item, f"{path}[{index}]", where)
    elif type(value) is float:
        if not math.isfinite(value):
            raise _not_json(f"{path} is {value}", where)
    elif value is not None and type(value) not in (bool, int, str):
        raise _not_json(f"{path} is a {type(value).__name__}", where)


def _not_json(what: str, where: str) -> CheckpointError:
    return CheckpointError(
        f"{what}, which would not read back equal from JSON",
        where=where,
        remedy="Keep plain dicts, lists, strings, finite numbers, booleans and None in a state",
    )


def without_non_finite(value: Any) -> Any:
    """`value` with None in place of NaN and infinities, which JSON cannot represent."""
    if isinstance(value, dict):
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


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in `path`, strictly: no NaN, no infinity, no other top-level value.

    Raises:
        CheckpointError: missing, unreadable, too large or not such an object; with `remedy`.
    """
    try:
        value = json.loads(plain_bytes(path, MAX_JSON_BYTES), parse_constant=_refuse_constant)
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
    except FileNotFoundError as error:
        raise CheckpointError("missing", where=str(path), remedy=remedy) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"unreadable: {error}", where=str(path), remedy=remedy) from error
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
