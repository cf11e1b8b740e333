"""Yelp-HAT (Sen et al., ACL 2020): reviews, negative or positive, and the words people marked.

Reads the .csv files of the authors' raw_data (`Input.label`, `Input.text` and
`Answer.html_output`, in which marked words are active spans), or one yelp_hat.jsonl (`label`,
`text`, `tokens`, `mask`). A row is one annotator's map; adjacent rows of a review become one
example. White space separates the words, as annotators saw them.

The maps themselves (`annotations`) are kept and, as the rationale, the words that anyone marked
(the paper's super attention map). The authors give no splits: 70%, 10% and 20% of the reviews are
train, dev and test, by a hash of the seed and the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from rss_rl.components import NoOptions
from rss_rl.data.corpora.cuts import drawn_split
from rss_rl.data.sources import (
    MOST_ANNOTATORS,
    BadRow,
    Row,
    Source,
    SourceComponent,
    SourceRequest,
    Words,
)
from rss_rl.data.tables import (
    Record,
    RowModel,
    column_names,
    examples,
    read_records,
    require_columns,
)
from rss_rl.errors import DataError
from rss_rl.seeding import stream_key
from rss_rl.types import LabelSpec

_JSON = "yelp_hat.jsonl"
_RAW = "raw_data"
_CSV_COLUMNS = ("Input.label", "Input.text", "Answer.html_output")
_JSON_COLUMNS = ("label", "text", "tokens", "mask")
_CLASSES = {"0": "negative", "1": "positive"}
_SHARES = {"train": 0.7, "dev": 0.1, "test": 0.2}
_SPAN = re.compile(r"<span([^>]*)>(.*?)</span>", re.DOTALL)
_ACTIVE = re.compile(r"""class\s*=\s*["'][^"']*\bactive\b""")


class _JsonRow(RowModel):
    label: int | str
    text: str
    tokens: list[str]
    mask: list[Literal[0, 1]]


class _Map(NamedTuple):
    """A row: the review, its label and words, and which words this annotator marked."""

    text: str
    label: str
    words: tuple[str, ...]
    bits: tuple[bool, ...]
    record: Record


def _read(split: str, *files: Path, seed: int) -> Iterator[Row]:
    """Stream one split; rows that cannot be read are reported with the training split."""
    for path in files:
        require_columns(path, column_names(path), _columns(path))
        for review in _reviews(examples(read_records(path), _map)):
            if isinstance(review, BadRow):
                if split == "train":
                    yield review
                continue
            key = stream_key(seed, "yelp-hat", " ".join(review[0].text.split()))
            if drawn_split(key, _SHARES) == split:
                yield _example(review)


def _example(maps: Sequence[_Map]) -> Row:
    first = maps[0]
    for other in maps:
        if (other.label, other.words) != (first.label, first.words):
            return other.record.bad(
                f"the label or words differ from those in row {first.record.row} of this review",
                "Give the rows of a review one label",
            )
    if len(maps) > MOST_ANNOTATORS:
        return first.record.bad(f"{len(maps)} maps of one review", f"Keep {MOST_ANNOTATORS}")
    bits = list(zip(*(row.bits for row in maps), strict=True))  # a tuple for each word
    return first.record.example(
        f"{Path(first.record.file).stem}-{first.record.row}",
        (Words(first.words),),
        _CLASSES.get(first.label, first.label),
        rationale=(tuple(any(who) for who in bits),),
        annotations=tuple(sum(bit << k for k, bit in enumerate(who)) for who in bits),
    )


def _columns(path: Path) -> tuple[str, ...]:
    return _JSON_COLUMNS if path.suffix == ".jsonl" else _CSV_COLUMNS


def _reviews(rows: Iterable[_Map | BadRow]) -> Iterator[list[_Map] | BadRow]:
    """The maps of each review; a bad row among them does not separate them."""
    maps: list[_Map] = []
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        if maps and row.text != maps[0].text:
            yield maps
            maps = []
        maps.append(row)
    if maps:
        yield maps


def _map(record: Record) -> _Map | BadRow:
    values = record.values
    if Path(record.file).suffix == ".jsonl":
        return _json_map(record)
    text, html = values["Input.text"], values["Answer.html_output"]
    spans = _SPAN.findall(html)
    words = tuple(text.split())
    # The authors' page ends a review with an empty span.
    if len(spans) > len(words) and not spans[-1][1].strip():
        spans = spans[: len(words)]
    bits = tuple(bool(_ACTIVE.search(attributes)) for attributes, _ in spans)
    return _checked(_Map(text, values["Input.label"].strip(), words, bits, record))


def _json_map(record: Record) -> _Map | BadRow:
    row = _JsonRow.model_validate(record.values)
    bits = tuple(bit == 1 for bit in row.mask)
    return _checked(_Map(row.text, str(row.label), tuple(row.tokens), bits, record))


def _checked(row: _Map) -> _Map | BadRow:
    if len(row.bits) != len(row.words):
        return row.record.bad(
            f"the map has {len(row.bits)} words, the review {len(row.words)}", "Take the row out"
        )
    if not any(row.bits):
        return row.record.bad("the map marks no word", "Take the row out")
    return row


def _build(request: SourceRequest, options: NoOptions) -> Source:
    folder = request.folder("yelp-hat", f"raw_data or {_JSON}")
    files: tuple[Path, ...] = (folder / _JSON,)
    if not files[0].is_file():
        files = tuple(sorted((folder / _RAW if (folder / _RAW).is_dir() else folder).glob("*.csv")))
    if not files:
        raise DataError(
            f"there is neither {_JSON} nor a .csv file",
            where=str(folder),
            remedy="Give the authors' folder raw_data as --from",
        )
    labels = LabelSpec("classes", names=tuple(_CLASSES.values()))
    reader = partial(_read, seed=request.seed)
    # Every split is cut from all files.
    return Source("yelp-hat", 1, labels, dict.fromkeys(_SHARES, files), reader)


YELP_HAT = SourceComponent(
    name="yelp-hat",
    help="Yelp-HAT reviews, negative / positive, with the words that several people marked",
    build=_build,
    capabilities=frozenset({"rationales"}),
    needs="--from FOLDER with the .csv files of raw_data, or yelp_hat.jsonl",
    source="Sen et al., ACL 2020",
)
