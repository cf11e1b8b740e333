"""Do the kept words decide the label, or does keeping them say it?

A policy that has read a whole text can decide, and then keep words that plead for its verdict: the
prediction depends on the kept words alone, and yet they do not explain it. Known as a Trojan
explanation (Jacovi and Goldberg, Aligning faithful interpretations with their social attribution,
TACL 2021) or encoding (Jethani et al., Have we learned to explain?, AISTATS 2021).

The sign is that *which* of the commonest words are kept tells the run's own prediction better than
which of them occur. A policy of single words cannot do that.

Legend: R rows, C classes, W words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from rss_rl.components import Trust
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.results.linear import Linear, Text, kept_words, texts_of
from rss_rl.results.scores import Reading, coverage, read_split
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.seeding import generator
from rss_rl.types import Array

MARGIN = 0.05
"""By how much keeping must tell more than being there, at the lower end of the interval."""
COMMON = 30
"""Words whose keeping is looked at."""
_FEWEST_ROWS, _FEWEST_OF_CLASS, _FEWEST_OF_WORD = 100, 10, 5
_MOST_ROWS, _MOST_WORDS = 5_000, 1_000_000
"""Of training that are read."""
_FOLDS, _DRAWS = 5, 1000
_COST = 8.0
"""C of the independent reader."""
_CLEAR = 4.0
"""Standard errors between shares of a word that depends on the prediction."""
_LISTED = 8


@dataclass(frozen=True)
class KeptRows:
    """Rows of a split as a run reads them.

    texts              R x S sentences
    kept               R x S x bool [N_s]
    labels, predicted  int64 [R], numbers of classes
    """

    texts: Sequence[Text]
    kept: Sequence[Sequence[Array]]
    labels: Array
    predicted: Array

    @cached_property
    def parts(self) -> list[Text]:
        """The kept words alone."""
        return [*map(kept_words, self.texts, self.kept)]


class DependentWord(TypedDict):
    """A word, how many texts have it, and its share kept where it is kept most and least."""

    word: str
    texts: int
    most: tuple[str, float]
    least: tuple[str, float]


class Told(TypedDict):
    """How well the prediction is told by which common words are kept, and by which occur.

    kept, there  balanced accuracies: of each predicted class, the mean over classes
    low, high    99% interval of their difference
    """

    kept: float
    there: float
    low: float
    high: float


class Trojan(TypedDict):
    """What is known of a split.

    rows    that were looked at
    reader  accuracy of an independent reader of all, kept and random words; empty where there is
            nothing to learn
    told    None with too few rows
    words   those whose keeping depends most on the predicted label
    remedy  settings with which the policy would read single words; none where it does
    """

    rows: int
    reader: dict[str, float]
    told: Told | None
    words: list[DependentWord]
    remedy: NotRequired[list[str]]


def find_trojan(run: Path, prepared: Prepared, split: str, reading: Reading) -> Trojan | None:
    """What the report of a run says of a split.

    Args:
        run: its directory. prepared: its data. reading: of the split.

    Returns:
        None where labels are no classes, or the run selects or predicts nothing.
    """
    words, predictions = reading.words, reading.predictions
    classes = prepared.labels.kind == "classes" and "predicted" in predictions
    if not classes or words["kept"].sum() == words["count"].sum():
        return None
    examples, train = prepared.split(split), prepared.split("train")
    mean = max(1.0, train.lengths().sum(1).mean())
    most = min(_MOST_ROWS, int(_MOST_WORDS / mean) + 1)
    learnt = np.sort(generator(0, "independent reader").permutation(len(train))[:most])
    labels, predicted = predictions[["label", "predicted"]].to_numpy(np.int64).T
    texts = [*texts_of(examples, predictions.index.to_numpy())]
    trojan = look_for_code(
        [*texts_of(train, learnt)],
        train.numbers("label")[learnt],
        KeptRows(texts, reading.kept, labels, predicted),
        prepared.labels.names,
    )
    return {**trojan, "remedy": single_words(RunDirectory.open(run).config["policy"])}


def single_words(policy: Mapping[str, Any]) -> list[str]:
    """The settings with which a policy would read each word without the rest of its text.

    Args:
        policy: of a run's resolved configuration.
    """
    wanted = {"options.pool": "none", "options.context": "none", "reads": "sentence"}
    options = {f"options.{key}": value for key, value in policy.get("options", {}).items()}
    read = {**policy, **options}
    return [f"policy.{key}={one}" for key, one in wanted.items() if read.get(key, one) != one]


def run_trojan(path: Path, split: str, **how: Any) -> Trojan | None:
    """`find_trojan` of a run; arguments and errors as `read_split`."""
    reading = read_split(path, split, **how)
    return find_trojan(path, open_prepared(RunDirectory.open(path).config["data"]), split, reading)


def add_trojan(path: Path, split: str, trust: Trust) -> None:
    """Write into a run's report what reading a split finds: trojan, and coverage of classes."""
    directory, reading = RunDirectory.open(path), read_split(path, split, trust=trust)
    trojan = find_trojan(path, open_prepared(directory.config["data"]), split, reading)
    report = {**directory.read_report(), "trojan": {split: trojan}}
    if "confidence" in reading.predictions:
        report["coverage"] = {split: coverage(reading.predictions).to_dict("records")}
    directory.write_report(report)


def look_for_code(
    train: Sequence[Text], labels: Array, rows: KeptRows, names: Sequence[str]
) -> Trojan:
    """Compare what keeping words tells with what the words tell.

    Args:
        train, labels: texts to learn from, of which the policy plays no part.
        names: of the classes.
    """
    counts = _count(train)
    common = sorted(counts, key=lambda word: (-counts[word], word))[:COMMON]
    return {
        "rows": len(rows.texts),
        "reader": _read(train, labels, rows),
        "told": _tell(rows, common),
        "words": _dependent(rows, names),
    }


def _read(train: Sequence[Text], labels: Array, rows: KeptRows) -> dict[str, float]:
    """Accuracy of a linear classifier of random parts of the texts, two of each."""
    random = generator(0, "random parts")

    def part(text: Text) -> Text:
        share = random.uniform()
        return kept_words(text, [random.random(len(words)) < share for words in text])

    def moved(kept: Sequence[Array]) -> list[Array]:
        return [random.permutation(bits) for bits in kept]

    for reader in Linear.learn(map(part, [*train, *train]), np.tile(labels, 2), [_COST]):
        read = {
            "all": rows.texts,
            "kept": rows.parts,
            "random": [*map(kept_words, rows.texts, map(moved, rows.kept))],
        }
        return {name: reader.accuracy(texts, rows.labels) for name, texts in read.items()}
    return {}


def _tell(rows: KeptRows, common: Sequence[str]) -> Told | None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    number, count = np.unique(rows.predicted, return_counts=True)
    used = np.isin(rows.predicted, number[count >= _FEWEST_OF_CLASS])
    predicted = rows.predicted[used]
    if used.sum() < _FEWEST_ROWS or len(np.unique(predicted)) < 2:
        return None
    weights = 1 / np.bincount(predicted)[predicted]
    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    right = np.stack(
        [
            predicted == cross_val_predict(model, _occur(texts, common)[used], predicted, cv=folds)
            for texts in (rows.parts, rows.texts)
        ]
    )  # bool [2, R]
    kept, there = np.average(right, axis=1, weights=weights)
    drawn = generator(0, "bootstrap").integers(0, len(predicted), (_DRAWS, len(predicted)))
    more = weights * (right[0].astype(float) - right[1])  # [R]
    low, high = np.quantile(more[drawn].sum(1) / weights[drawn].sum(1), (0.005, 0.995))
    return {"kept": float(kept), "there": float(there), "low": float(low), "high": float(high)}


def _dependent(rows: KeptRows, names: Sequence[str]) -> list[DependentWord]:
    counts = _count(rows.texts)
    vocabulary = sorted(word for word, count in counts.items() if count >= 2 * _FEWEST_OF_WORD)
    if not vocabulary:
        return []
    of_class = (np.arange(len(names))[:, None] == rows.predicted).astype(float)  # [C, R]
    there, kept = (of_class @ _occur(t, vocabulary) for t in (rows.texts, rows.parts))
    share = np.divide(kept, there, where=there >= _FEWEST_OF_WORD, out=np.full(there.shape, np.nan))
    by_dependence = []
    for column in np.flatnonzero(np.isfinite(share).sum(0) > 1):
        most, least = (int(pick(share[:, column])) for pick in (np.nanargmax, np.nanargmin))
        texts = there[[most, least], column]
        both = kept[[most, least], column].sum() / texts.sum()
        apart = share[most, column] - share[least, column]
        if apart > _CLEAR * (error := np.sqrt(both * (1 - both) * (1 / texts).sum())):
            word: DependentWord = {
                "word": vocabulary[column],
                "texts": counts[vocabulary[column]],
                "most": (names[most], float(share[most, column])),
                "least": (names[least], float(share[least, column])),
            }
            by_dependence.append((apart / error, word))
    by_dependence.sort(key=lambda pair: -pair[0])
    return [word for _, word in by_dependence[:_LISTED]]


def _count(texts: Iterable[Text]) -> Counter[str]:
    """How many texts each word is in."""
    return Counter(word for text in texts for word in _words(text))


def _occur(texts: Sequence[Text], words: Sequence[str]) -> Any:
    """Whether each word is in each text, sparse [R, W]."""
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(analyzer=_words, vocabulary=words, binary=True).transform(texts)


def _words(text: Text) -> set[str]:
    """The words of all sentences of a text."""
    return {word.lower() for words in text for word in words}
