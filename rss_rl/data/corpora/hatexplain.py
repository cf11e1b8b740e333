"""HateXplain: posts, hate speech, offensive or normal, and the words that people marked.

dataset.json holds posts by id: `post_tokens`, three `annotators` with a `label` each, and
`rationales`, a list of 0 and 1 of each annotator who marked words; normal posts are not marked.
post_id_divisions.json holds the ids of the splits. A post has the label of the majority; a post
with three different labels is left out, as by its authors. The maps themselves (`annotations`) are
kept and, as the rationale, the words that anyone marked, which the authors evaluate against.

Source: Mathew et al., HateXplain: A Benchmark Dataset for Explainable Hate Speech Detection, AAAI
2021. A JSON file is a single value, so both files are held in memory while they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rss_rl.data.sources import BadRow, Row, SourceComponent, Words, read_folder
from rss_rl.data.tables import AS_GIVEN, Record, RowModel, examples
from rss_rl.errors import DataError
from rss_rl.json_files import read_json
from rss_rl.types import LabelSpec

_POSTS, _DIVISIONS = "dataset.json", "post_id_divisions.json"
_SPLITS = {"train": "train", "dev": "val", "test": "test"}
_CLASSES = {"hatespeech": "hate speech", "offensive": "offensive", "normal": "normal"}
_REMEDY = "Use the files of HateXplain's folder Data as its authors give them"


def _read(split: str, posts: Path, divisions: Path) -> Iterator[Row]:
    """Stream one split; rows are the posts of dataset.json, counted from 1.

    Raises:
        DataError: a file is not HateXplain's.
    """
    wanted = read_json(divisions, _REMEDY, DataError).get(_SPLITS[split])
    if not isinstance(wanted, list):
        raise DataError(f"has no list '{_SPLITS[split]}'", where=str(divisions), remedy=_REMEDY)
    known = read_json(posts, _REMEDY, DataError)
    rows = {name: row for row, name in enumerate(known, start=1)}
    for place, name in enumerate(wanted, start=1):
        if name not in rows:
            yield BadRow(str(divisions), place, f"{_POSTS} has no post {name!r:.80}", AS_GIVEN)
        else:
            values = {"id": name, "post": known[name]}
            yield from examples([Record(str(posts), rows[name], values)], _example)


class _Vote(RowModel):
    label: Literal["hatespeech", "offensive", "normal"]


class _Post(RowModel):
    """A post, what each annotator called it, and the words that each of them marked."""

    post_tokens: Annotated[list[str], Field(min_length=1)]
    annotators: Annotated[list[_Vote], Field(min_length=1)]
    rationales: list[list[Literal[0, 1]]]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(len(bits) != len(self.post_tokens) for bits in self.rationales):
            raise ValueError("a map does not have a 0 or 1 for each word")
        return self


def _example(record: Record) -> Row:
    post = _Post.model_validate(record.values["post"])
    label, most = Counter(vote.label for vote in post.annotators).most_common(1)[0]
    if 2 * most <= len(post.annotators):
        return record.bad("no majority label", by_convention=True)
    people = list(zip(*post.rationales, strict=True)) or [()] * len(post.post_tokens)
    marked = tuple(sum(bit << k for k, bit in enumerate(who)) for who in people)
    return record.example(
        record.values["id"],
        (Words(post.post_tokens),),
        _CLASSES[label],
        rationale=(tuple(bits > 0 for bits in marked),),
        annotations=marked,
    )


_FILES = dict.fromkeys(_SPLITS, (_POSTS, _DIVISIONS))
_LABELS = LabelSpec("classes", names=tuple(_CLASSES.values()))
HATEXPLAIN = SourceComponent(
    name="hatexplain",
    help="HateXplain posts, hate speech / offensive / normal, with the words that people marked",
    build=read_folder(1, _LABELS, _FILES, _read, name="hatexplain"),
    capabilities=frozenset({"rationales"}),
    needs=f"--from FOLDER with {_POSTS} and {_DIVISIONS}",
    source="Mathew et al., AAAI 2021",
)
