"""Sentences of product reviews, with words that people rate as positive or negative: real text
shipped with the package.

Customers wrote about two cameras, a telephone, a music player and a DVD player (Hu & Liu, KDD
2004). At least twenty people rated each sentence from -4 to 4 (Hutto & Gilbert, ICWSM 2014); those
with a mean of at least 1 (positive) or at most -1 (negative) are included. The rationale is the
words of VADER's lexicon, each of which ten people rated without context. So nobody marked what
decides *this* sentence: "play" is always marked, and in "never works" nothing is. A fifth of the
sentences has no mark.

The splits are fixed and do not divide reviews. Authors, licences and changes:
`product_reviews.LICENSE.txt` beside this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rss_rl.components import Options
from rss_rl.data.sources import BadRow, Row, Source, SourceComponent, SourceRequest, Words
from rss_rl.data.tables import Record, read_records
from rss_rl.types import LabelSpec

_FILE = Path(__file__).with_name("product_reviews.tsv")
_LABELS = ("negative", "positive")


def _read(split: str, path: Path) -> Iterator[Row]:
    for record in read_records(path, quoted=False):
        if isinstance(record, BadRow):
            yield record
        elif record.values["split"] == split:
            yield _example(record)


def _example(record: Record) -> Row:
    values = record.values
    words = Words(values["words"].split(" "))
    marked = {int(place) for place in values["marked"].split()}
    bits = tuple(place in marked for place in range(len(words)))
    label = _LABELS[float(values["rating"]) > 0]
    return record.example(values["id"], (words,), label, rationale=(bits,))


def _build(request: SourceRequest, options: Options) -> Source:
    request.without_folder("the reviews are shipped with the package")
    files = dict.fromkeys(("train", "dev", "test"), (_FILE,))
    labels = LabelSpec("classes", names=_LABELS)
    return Source("product-reviews", 1, labels, files, _read)


PRODUCT_REVIEWS = SourceComponent(
    name="product-reviews",
    help="real sentences of product reviews (CC BY 4.0, MIT), negative / positive as people rated",
    build=_build,
    capabilities=frozenset({"included", "rationales"}),
    source="Hu & Liu, KDD 2004; Hutto & Gilbert, ICWSM 2014",
)
