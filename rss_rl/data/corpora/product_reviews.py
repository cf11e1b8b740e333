"""Sentences of product reviews, with the words that people find positive or negative: real text
that travels with the package.

Customers wrote about two cameras, a telephone, a music player and a DVD player (Hu & Liu, KDD
2004). At least twenty people rated each sentence from -4 to 4 (Hutto & Gilbert, ICWSM 2014); here
are those whose mean is at least 1 (positive) or at most -1 (negative). The rationale are the words
of VADER's lexicon: ten people rated each, shown it alone. So nobody marked what decides *this*
sentence: "play" is marked in every one, and in "never works" nothing is. A fifth of the sentences
has no mark.

The splits are fixed and part no review. Who wrote it, licences and changes:
`product_reviews.LICENSE.txt` beside this file.
"""

from __future__ import annotations

__all__ = ["PRODUCT_REVIEWS", "ProductReviews"]

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rss_rl.components import Options
from rss_rl.data.records import Record, read_records
from rss_rl.data.sources import BadRow, RawExample, SourceComponent, SourceRequest, Words
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

_FILE = Path(__file__).with_name("product_reviews.tsv")
_LABELS = ("negative", "positive")


@dataclass(frozen=True)
class ProductReviews:
    """The sentences of the file that travels with the package."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        return "product-reviews"

    @property
    def sentences(self) -> int:
        """One sentence of a review."""
        return 1

    def label_spec(self) -> LabelSpec:
        """Two classes."""
        return LabelSpec("classes", names=_LABELS)

    def splits(self) -> Mapping[str, tuple[Path, ...]]:
        """Every split is in the one file."""
        return dict.fromkeys(("train", "dev", "test"), (_FILE,))

    def read(self, split: str) -> Iterator[RawExample | BadRow]:
        """Stream one split."""
        for record in read_records(_FILE, quoted=False):
            if isinstance(record, BadRow):
                yield record
            elif record.values["split"] == split:
                yield _example(record)


def _example(record: Record) -> RawExample:
    values = record.values
    words = Words(values["words"].split(" "))
    marked = {int(place) for place in values["marked"].split()}
    return RawExample(
        id=values["id"],
        texts=(words,),
        label=_LABELS[float(values["rating"]) > 0],
        rationale=(tuple(place in marked for place in range(len(words))),),
        file=record.file,
        row=record.row,
    )


def _build(request: SourceRequest, options: Options) -> ProductReviews:
    if request.path is not None:
        raise DataError(
            "the reviews travel with the package",
            where=str(request.path),
            remedy="Leave out --from",
        )
    return ProductReviews()


PRODUCT_REVIEWS = SourceComponent(
    name="product-reviews",
    help="real sentences of product reviews (CC BY 4.0, MIT), negative / positive as people rated",
    build=_build,
    capabilities=frozenset({"included", "rationales"}),
    source="Hu & Liu, KDD 2004; Hutto & Gilbert, ICWSM 2014",
)
