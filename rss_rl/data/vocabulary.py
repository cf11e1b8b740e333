"""The words of a prepared dataset and their ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np

from rss_rl.errors import DataError
from rss_rl.types import Array

PAD, UNKNOWN = 0, 1
"""Ids of padding and of an out-of-vocabulary word."""
SPECIAL_WORDS = ("<pad>", "<unk>")


@dataclass(frozen=True)
class Vocabulary:
    """Words by id: `<pad>`, `<unk>`, the training words by decreasing count, then the other words.

    words      word of each id
    trainable  vectors of ids below it are fine-tuned; the rest, words that only other splits have,
               stay fixed
    """

    words: tuple[str, ...]
    trainable: int

    @classmethod
    def count(cls, train: Counter[str], others: Counter[str]) -> Vocabulary:
        """The vocabulary of counted words; equal counts are ordered by word."""

        def ordered(counts: Counter[str], known: set[str]) -> list[str]:
            kept = [word for word in counts if word not in known]
            return sorted(kept, key=lambda word: (-counts[word], word))

        special = set(SPECIAL_WORDS)
        trained = ordered(train, special)
        return cls(
            (*SPECIAL_WORDS, *trained, *ordered(others, special | train.keys())),
            trainable=len(SPECIAL_WORDS) + len(trained),
        )

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        ids = {word: i for i, word in enumerate(self.words)}
        # A real token that is written like padding must not become padding.
        ids[SPECIAL_WORDS[PAD]] = UNKNOWN
        return ids

    def ids(self, keys: Iterable[str]) -> Array:
        """int64 [n], the id of each key; UNKNOWN for out-of-vocabulary keys."""
        return np.fromiter(map(self._ids.get, keys, repeat(UNKNOWN)), dtype=np.int64)

    def save(self, path: Path) -> None:
        """Write the words as a JSON list; `trainable` is in the manifest."""
        path.write_text(json.dumps(self.words, ensure_ascii=False, indent=0), encoding="utf-8")

    @classmethod
    def load(cls, path: Path, size: int, trainable: int) -> Vocabulary:
        """Read the words back.

        Raises:
            DataError: the file is missing, damaged, or does not hold `size` words.
        """
        remedy = "Prepare the data again"
        try:
            words = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"cannot be read ({error})", where=str(path), remedy=remedy) from error
        if not isinstance(words, list) or len(words) != size or not _are_words(words):
            raise DataError(
                f"does not hold the {size} words of the manifest", where=str(path), remedy=remedy
            )
        return cls(tuple(words), trainable)


def _are_words(words: list[object]) -> bool:
    """Whether all are texts that UTF-8 can encode, the special words first."""
    try:
        "".join(words).encode()  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):
        return False
    return tuple(words[: len(SPECIAL_WORDS)]) == SPECIAL_WORDS
