"""Checks of rows and labels, and the rejects file."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np

from rss_rl.data.sources import MOST_ANNOTATORS, BadRow, RawExample, Text
from rss_rl.data.tokens import Tokens
from rss_rl.errors import DataError, nearest
from rss_rl.types import LabelSpec

LARGEST_SCORE = float(np.finfo(np.float32).max)
"""Scores are stored in 32 bits."""
_MISSING = frozenset({"", "nan", "NaN", "NaT", "<NA>", "None", "null", "NULL"})
"""As pandas, JSON and databases write it; `none` and `NA` may as well be names of classes."""
_MANY_CLASSES = 1000
_MANY_IDS = 20
"""More classes than this with a row each are ids."""
_SHOWN = 10_000
"""Most characters of a row in the rejects file."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INVISIBLE = re.compile(  # control characters but white space, and Default_Ignorable_Code_Point
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_WHOLE = re.compile(r"-?[0-9]{1,18}")
Fault = tuple[str, str]
"""Reason and remedy."""
MOST_CHARACTERS, MOST_WORDS = 1 << 23, 50_000
"""Of a text. Some layers take time that is quadratic in its words."""
SHORTEN = "Cut it into parts"


def joined_labels(names: Sequence[str]) -> str:
    """That labels look like several in one; empty if none does.

    >>> joined_labels(["red", "blue", "red;blue"]).partition(":")[0]
    "'red;blue' is a class of its own"
    """
    for sign in ";|,":
        parts = [{part.strip() for part in name.split(sign)} for name in names]
        often = Counter(part for several in parts for part in several)
        for name, several in zip(names, parts, strict=True):
            if len(several) > 1 and all(often[part] > 1 for part in several):
                return (
                    f"'{name}' is a class of its own: a text has one label. Of several labels,"
                    " train a run for each"
                )
    return ""


class LabelChecker:
    """Checks labels against a spec, or infers the spec from the training labels.

    Args:
        spec: None: classes, named by the training labels; a score with an infinite range takes its
            range from them. Of a sentence or candidate, only the form of the number is checked:
            `example_fault` checks that the example has it.
    """

    def __init__(self, spec: LabelSpec | None) -> None:
        self._spec = spec or LabelSpec("classes")
        self._learn = spec is None or (spec.kind == "score" and math.isinf(spec.high))
        self._known: set[str] = set(self._spec.names)
        self._values = 0
        self._low, self._high = math.inf, -math.inf

    @property
    def spec(self) -> LabelSpec:
        """The spec as known so far."""
        return self._spec

    def value(self, label: str | float) -> tuple[str | float | None, Fault]:
        """The label as stored (class name, score or number), or None and its fault."""
        if is_missing(label) and str(label) not in self._spec.names:
            return None, ("the label is missing", "Write one, or take the row out")
        if self._spec.kind == "score":
            return self._score(label)
        if self._spec.chooses:
            number = choice_number(label)
            what = f"the label '{label}' is not the number of a mark"
            return number, ("", "") if number is not None else (what, "Write 0, 1, 2 and so on")
        name = str(label)
        if not is_storable((name,)):
            return None, ("the label contains a lone surrogate", "Write a class name")
        if self._learn:
            self._values += 1
            self._known.add(name)
            if len(self._known) > _MANY_CLASSES:
                raise DataError(
                    f"the label column has more than {_MANY_CLASSES} different values",
                    remedy="If they are scores, say so with --task score",
                )
        elif name not in self._known:
            names = ", ".join(self._spec.names[:10])
            same = [known for known in self._spec.names if _meaning(known) == _meaning(name)]
            hint = f", not {same[0]!a}" if same else nearest(name, list(self._spec.names))
            shown = ascii(name) if same else repr(name)
            return None, (f"unknown label {shown}{hint}", f"The classes are: {names}")
        return name, ("", "")

    def _score(self, label: str | float) -> tuple[float | None, Fault]:
        try:
            score = as_number(label)
        except ValueError:
            return None, (f"the score '{label}' is not a number", "Write a number")
        if not math.isfinite(score):
            return None, (f"the score is {label}", "Write a finite number")
        if abs(score) > LARGEST_SCORE:
            return None, (f"the score {label} does not fit 32 bits", "Divide the scores")
        if self._learn:
            self._low, self._high = min(self._low, score), max(self._high, score)
        elif not self._spec.low <= score <= self._spec.high:
            allowed = f"{self._spec.low:g} to {self._spec.high:g}"
            return None, (
                f"score {label} is outside {allowed}",
                "Correct it, or set the range with --low and --high",
            )
        return score, ("", "")

    def end_of_training(self, file: str) -> None:
        """Fix the inferred spec; called once, after the training split.

        Raises:
            DataError: all training rows have the same label.
        """
        if not self._learn:
            return
        self._learn = False
        if self._spec.kind == "score":
            self._spec = LabelSpec("score", low=self._low, high=self._high)
            alike = self._low == self._high
            only = f"{self._low:g}"
        else:
            self._spec = LabelSpec("classes", names=tuple(_ordered(self._known)))
            alike = len(self._known) < 2
            only = repr(next(iter(self._known), ""))
            self._check_names(file)
        if alike:
            raise DataError(
                f"all training rows have the same label, {only:.40}",
                where=file,
                remedy="Check --label, and that the rows kept for dev and test took no whole class",
            )

    def _check_names(self, file: str) -> None:
        """Check that classes are no ids, and that no two mean the same."""
        if self._values == len(self._known) > _MANY_IDS:
            raise DataError(
                f"each of the {self._values} training rows has a label of its own",
                where=file,
                remedy="Name the column of the labels with --label; for scores, give --task score",
            )
        check_alike(self._known, file)


def check_alike(names: Iterable[str], where: str) -> None:
    """Refuse names of classes that look or mean the same.

    Raises:
        DataError: two do; shows them with escapes.
    """
    first: dict[str | Decimal, str] = {}
    for name in sorted(names):
        other = first.setdefault(_meaning(name), name)
        if other != name:
            raise DataError(
                f"the labels {other!a} and {name!a} are two ways to write one class",
                where=where,
                remedy="Write all labels of a class alike",
            )


def _meaning(name: str) -> str | Decimal:
    """What a name says: its number, yes or no in any case, or what can be seen of it."""
    shown = visible(name)
    if _NUMBER.fullmatch(shown):
        with suppress(InvalidOperation):  # an exponent of dozens of digits
            return Decimal(shown)
    return shown.lower() if shown.lower() in ("true", "false") else shown


def is_missing(label: str | float) -> bool:
    """Whether a label is a table's notation for a missing value.

    >>> [is_missing(label) for label in ("", " ", float("nan"), "NaN", "None", "none", 0.0)]
    [True, True, True, True, True, False, False]
    """
    return visible(str(label)) in _MISSING


def as_number(value: str | float) -> float:
    """The number that a value is, as `float` has it, which takes 1_1 for 11.

    Raises:
        ValueError: it is none.
    """
    if "_" in str(value):
        raise ValueError
    return float(value)


def _ordered(names: set[str]) -> list[str]:
    if all(_WHOLE.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def choice_number(label: str | float) -> int | None:
    """The label as the number of a sentence or candidate; None if it is not such a number."""
    try:
        number = as_number(label)
    except ValueError:
        return None
    return int(number) if number >= 0 and number.is_integer() else None


def example_fault(
    example: RawExample, tokens: list[Tokens], sentences: int, labels: LabelSpec
) -> Fault | None:
    """The first fault of an example's texts, id, rationale, annotations or marks; None if none."""
    if len(tokens) != sentences:
        return f"{len(tokens)} texts where {sentences} are expected", ""
    for slot, (words, _) in enumerate(tokens):
        which = f"text {slot + 1}" if sentences > 1 else "text"
        which = f"column '{example.columns[slot]}'" if example.columns else which
        if not words:
            return f"{which} is empty", "Write the text, or take the row out"
        if "" in words:
            return f"token {words.index('') + 1} of {which} is empty", "Take it out of the list"
        if not is_storable(words):
            return f"{which} contains a lone surrogate", "Write the text again as UTF-8"
    if not is_storable((example.id,)):
        return "the id contains a lone surrogate", "Write the id again as UTF-8"
    if example.rationale is not None and [len(bits) for bits in example.rationale] != [
        len(words) for words, _ in tokens
    ]:
        return "the rationale does not have one bit for each token", "Give one for each token"
    people = example.annotations
    if people is not None and (len(people) != len(tokens[0].words) or min(people) < 0):
        return "not every token says which annotators marked it", "Give a map for every token"
    if people is not None and max(people) >> MOST_ANNOTATORS:
        most = f"the {MOST_ANNOTATORS} annotators that can be stored"
        return f"a token is marked by others than {most}", "Leave their maps out"
    return _marks_fault(example, len(tokens[0].words), labels)


def length_fault(text: Text, words: int = 0) -> Fault | None:
    """What is wrong with a text of so many words, if it is longer than any that is read."""
    characters = len(text) if isinstance(text, str) else sum(map(len, text))
    sizes = (characters, MOST_CHARACTERS, "characters"), (words, MOST_WORDS, "words")
    for size, most, what in sizes:
        if size > most:
            return f"a text of {size:,} {what}, more than the {most:,} that are read", SHORTEN
    return None


def _marks_fault(example: RawExample, tokens: int, labels: LabelSpec) -> Fault | None:
    marks = example.marks
    if (marks is not None) != labels.chooses:
        have = "has" if marks is not None else "lacks"
        return f"it {have} marks where labels are {labels.kind}", "Mark what a label chooses from"
    if marks is None:
        return None
    if len(marks) != tokens:
        return f"{len(marks)} marks for {tokens} tokens", "Give one for each token of text 1"
    numbers = set(marks) - {-1}
    if numbers != set(range(len(numbers))):
        return "the marks are not -1 and all of 0, 1, 2 and so on", "Number them without a gap"
    number = choice_number(example.label)
    if number is not None and number not in numbers:
        return f"no token has the mark {number} that is the label", "Give the number of a mark"
    return None


def visible(text: str) -> str:
    """What can be seen of a text: no invisible characters, spaces as white space, NFKC."""
    return " ".join(unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).split())


def text_key(texts: Sequence[Text]) -> int:
    """A number of 64 bits for the texts of an example, the same for copies of them.

    White space, case, and what cannot be seen make no difference.
    """
    plain = (visible("".join(text)).casefold().replace(" ", "") for text in texts)
    content = "\0".join(plain).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def is_storable(words: tuple[str, ...]) -> bool:
    """Whether UTF-8 can encode the words: none contains a lone surrogate."""
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        return False
    return True


class Rejects:
    """Takes bad rows: raises an error or, with `skip`, writes a line of rejects.jsonl."""

    def __init__(self, path: Path, skip: bool) -> None:
        self._path, self._skip = path, skip
        self.bad: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def take(self, row: BadRow, part: str) -> None:
        """Count and record a bad row of `part` (a split, or 'vectors').

        Raises:
            DataError: bad rows are not skipped.
        """
        if row.by_convention:
            self.dropped[part] += 1
            return
        if not self._skip:
            raise row.error()
        self.bad[part] += 1
        line = {
            "file": row.file,
            "row": row.row,
            "reason": row.reason,
            "content": row.content[:_SHOWN],
        }
        with self._path.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
