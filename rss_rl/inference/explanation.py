"""What a trained model predicts for a text, and the words the prediction is based on.

Legend: N tokens of a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import compress
from typing import Any

import numpy as np

from rss_rl.types import DEPENDENT, HEAD, Array

_KEPT = "background:rgba(255,170,0,.35);color:inherit;font-weight:600"


@dataclass(frozen=True, repr=False)
class MarkedSentence:
    """One sentence as the model sees it.

    words          as written
    known          bool [N], False for words outside the vocabulary
    selection      bool [2, N], heads and dependents
    probabilities  float32 [2, N], selection probabilities; None if the run has no policy
    """

    words: tuple[str, ...]
    known: Array
    selection: Array
    probabilities: Array | None

    @property
    def kept(self) -> Array:
        """bool [N], selected as head or as dependent."""
        return np.asarray(self.selection.any(0))

    @property
    def kept_words(self) -> list[str]:
        """The kept words, in their order."""
        return list(compress(self.words, self.kept.tolist()))

    @property
    def known_share(self) -> float:
        """Share of the words that are known; punctuation aside, if there is more."""
        words = zip(self.words, self.known.tolist(), strict=True)
        bits = [known for word, known in words if any(map(str.isalnum, word))]
        return float(np.mean(bits or self.known))

    def __repr__(self) -> str:
        pairs = zip(self.words, self.kept, strict=True)
        return " ".join(f"[{word}]" if kept else word for word, kept in pairs)

    def _repr_html_(self) -> str:
        """For notebooks; kept words are bold on translucent amber, which suits light and dark."""
        marked = (
            f'<mark style="{_KEPT}">{escape(word)}</mark>' if kept else escape(word)
            for word, kept in zip(self.words, self.kept, strict=True)
        )
        return f"<p>{' '.join(marked)}</p>"

    def to_list(self) -> list[dict[str, Any]]:
        """JSON data, one mapping per word."""
        return [self._word(index) for index in range(len(self.words))]

    def _word(self, index: int) -> dict[str, Any]:
        word: dict[str, Any] = {
            "word": self.words[index],
            "known": bool(self.known[index]),
            "head": bool(self.selection[HEAD, index]),
            "dependent": bool(self.selection[DEPENDENT, index]),
        }
        if self.probabilities is not None:
            word["head_probability"] = round(float(self.probabilities[HEAD, index]), 4)
            word["dependent_probability"] = round(float(self.probabilities[DEPENDENT, index]), 4)
        return word


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a model predicts for one example, and from which words.

    prediction           name of a class, or a score; None if the run trained no classifier
    class_probabilities  by name; None for a score, or without a prediction
    """

    sentences: tuple[MarkedSentence, ...]
    prediction: str | float | None
    class_probabilities: dict[str, float] | None

    @property
    def kept(self) -> float:
        """Share of the words of all sentences that are selected as head or dependent."""
        kept = sum(int(sentence.kept.sum()) for sentence in self.sentences)
        return kept / max(1, sum(len(sentence.words) for sentence in self.sentences))

    @property
    def kept_words(self) -> list[str]:
        """The kept words of all sentences, in their order."""
        return [word for sentence in self.sentences for word in sentence.kept_words]

    @property
    def known(self) -> float:
        """Share of the words that are known, of the sentence of which fewest are."""
        return min(sentence.known_share for sentence in self.sentences)

    @property
    def note(self) -> str:
        """Why the prediction says little; empty if nothing is against it."""
        return "" if self.known else "no word of the text is known: the prediction says little"

    @property
    def title(self) -> str:
        """The prediction with its probability, or the score."""
        if self.prediction is None:
            return "no prediction"
        if self.class_probabilities is None:
            return f"{self.prediction:.3f}"
        return f"{self.prediction} ({self.class_probabilities[str(self.prediction)]:.1%})"

    def __repr__(self) -> str:
        return f"{self.title}: {' | '.join(map(repr, self.sentences))}"

    def _repr_html_(self) -> str:
        sentences = "".join(sentence._repr_html_() for sentence in self.sentences)
        return f"<p><b>{escape(self.title)}</b>, {self.kept:.0%} kept</p>{sentences}"

    def cells(self) -> dict[str, Any]:
        """A row of a table, by column: prediction, p_CLASS, kept, known, words_kept, words_kept_b.

        The last is of a second text.
        """
        row: dict[str, Any] = {"prediction": self.prediction}
        chances = self.class_probabilities or {}
        row |= {f"p_{name}": share for name, share in chances.items()}
        row |= {"kept": self.kept, "known": self.known}
        for sentence, suffix in zip(self.sentences, ("", "_b"), strict=False):
            row[f"words_kept{suffix}"] = " ".join(sentence.kept_words)
        return row

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "prediction": self.prediction,
            "class_probabilities": self.class_probabilities,
            "kept": self.kept,
            "known": self.known,
            "note": self.note,
            "sentences": [sentence.to_list() for sentence in self.sentences],
        }
