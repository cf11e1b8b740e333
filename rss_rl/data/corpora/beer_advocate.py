"""BeerAdvocate: beer reviews scored by aspect, and the passages that people marked for each.

Lei et al. give two files per aspect, reviews.aspectN.train.txt.gz and .heldout.txt.gz, with reviews
selected so that scores of aspects are weakly correlated: a line has the five scores between 0 and
1, a tab, and the words. annotations.json is the test split: a line has the words `x`, the scores
`y` and for each aspect, "0" to "4", a list of marked ranges [start, end).

By default a review is negative up to a score of .4, positive from .6, and left out in between, as
by Bao et al. (EMNLP 2018): agreement with people is measured for classes. With labels=score the
score itself is predicted, as by Lei et al.

Source: McAuley, Leskovec and Jurafsky, ICDM 2012 (reviews, marks); Lei, Barzilay and Jaakkola,
EMNLP 2016 (files).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, NonNegativeInt, TypeAdapter

from rss_rl.components import Options
from rss_rl.data.corpora.folders import source_files, source_folder
from rss_rl.data.records import AS_GIVEN, Record, RowModel, examples, read_lines, read_records
from rss_rl.data.sources import ReaderSource, Row, SourceComponent, SourceRequest, Words
from rss_rl.types import LabelSpec

_ASPECTS = ("appearance", "smell", "palate")
_SCORES = 5
_CLASSES = ("negative", "positive")
_NEGATIVE, _POSITIVE = 0.4, 0.6
_ANNOTATIONS = "annotations.json"


def _read(split: str, path: Path, *, aspect: int, classes: bool) -> Iterator[Row]:
    rows, made = (
        (read_records(path, "jsonl"), _annotated) if split == "test" else (read_lines(path), _plain)
    )
    return examples(rows, partial(made, aspect=aspect, classes=classes))


class _Scores(RowModel):
    """The five scores of a review, by aspect."""

    y: Annotated[list[FiniteFloat], Field(min_length=_SCORES, max_length=_SCORES)]


class _Marked(_Scores):
    """A review of the test split."""

    x: list[str]


_RANGES = TypeAdapter(list[tuple[NonNegativeInt, NonNegativeInt]])


def _plain(record: Record, aspect: int, classes: bool) -> Row:
    scores, _, text = record.values["line"].partition("\t")
    found = _Scores.model_validate({"y": scores.split() if text else []}, strict=False)
    return _example(record, found, text.split(), None, aspect, classes)


def _annotated(record: Record, aspect: int, classes: bool) -> Row:
    found = _Marked.model_validate(record.values)
    bits = [False] * len(found.x)
    for start, end in _RANGES.validate_python(record.values.get(str(aspect))):
        if not start <= end <= len(bits):
            what = f"'{aspect}' holds {[start, end]}, not a range [start, end] of {len(bits)} words"
            return record.bad(what, AS_GIVEN)
        bits[start:end] = [True] * (end - start)
    return _example(record, found, found.x, tuple(bits), aspect, classes)


def _example(
    record: Record,
    found: _Scores,
    words: list[str],
    bits: tuple[bool, ...] | None,
    aspect: int,
    classes: bool,
) -> Row:
    score = found.y[aspect]
    if classes and _NEGATIVE < score < _POSITIVE:
        return record.bad("neither negative nor positive", by_convention=True)
    return record.example(
        str(record.row),
        (Words(words),),
        _CLASSES[score >= _POSITIVE] if classes else score,
        rationale=None if bits is None else (bits,),
    )


class BeerOptions(Options):
    """The scores to predict, and their form."""

    aspect: Literal["appearance", "smell", "palate"] = Field(
        default="appearance", description="Whose score is predicted and whose marks are read."
    )
    labels: Literal["classes", "score"] = Field(
        default="classes", description="Negative and positive, without those in between; or scores."
    )


def _build(request: SourceRequest, options: BeerOptions) -> ReaderSource:
    aspect, classes = _ASPECTS.index(options.aspect), options.labels == "classes"
    name = f"reviews.aspect{aspect}.{{}}.txt.gz"
    folder = source_folder("beer-advocate", request, name.format("train"))
    files = {"train": name.format("train"), "dev": name.format("heldout"), "test": _ANNOTATIONS}
    labels = LabelSpec("classes", names=_CLASSES) if classes else LabelSpec("score", (), 0.0, 1.0)
    reader = partial(_read, aspect=aspect, classes=classes)
    return ReaderSource("beer-advocate", 1, labels, source_files(folder, files), reader)


BEER_ADVOCATE = SourceComponent(
    name="beer-advocate",
    help="BeerAdvocate reviews, negative / positive or a score, with passages that people marked",
    build=_build,
    options=BeerOptions,
    capabilities=frozenset({"rationales"}),
    needs=f"--from FOLDER with reviews.aspectN.train.txt.gz, .heldout.txt.gz and {_ANNOTATIONS}",
    source="McAuley et al., ICDM 2012; Lei et al., EMNLP 2016",
)
