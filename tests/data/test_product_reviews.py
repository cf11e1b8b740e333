"""The reviews that shipped with the package: in fixed splits, marked, and with their licence."""

from __future__ import annotations

import hashlib

from rss_rl.data.sources import RawExample, SourceRequest, named_source

SPLITS = {"train": 1741, "dev": 221, "test": 426}


def rows(split: str) -> list[RawExample]:
    found = list(named_source("product-reviews", SourceRequest()).read(split))
    assert all(isinstance(row, RawExample) for row in found)
    return [row for row in found if isinstance(row, RawExample)]


def test_the_splits_are_fixed() -> None:
    """Figures in the documentation rest on them."""
    ids = {split: [row.id for row in rows(split)] for split in SPLITS}
    assert {split: len(of) for split, of in ids.items()} == SPLITS
    digest = hashlib.sha256(repr(ids).encode()).hexdigest()
    assert digest.startswith("c72b76c787bb4d8e")


def test_marks_are_of_words_everywhere_the_same() -> None:
    """A word was rated by itself, so that it is marked wherever it stands, or nowhere."""
    marked: dict[str, set[bool]] = {}
    for split in SPLITS:
        for row in rows(split):
            assert row.rationale is not None
            for word, bit in zip(row.texts[0], row.rationale[0], strict=True):
                marked.setdefault(word.lower(), set()).add(bit)
    assert set(map(len, marked.values())) == {1}
    assert marked["great"] == marked["problem"] == {True}
    assert marked["the"] == marked["camera"] == {False}


def test_the_licence_lies_beside_the_file() -> None:
    (file,) = named_source("product-reviews", SourceRequest()).splits["train"]
    text = file.with_name("product_reviews.LICENSE.txt").read_text(encoding="utf-8")
    for owed in ("Bing Liu", "CC BY 4.0", "C.J. Hutto", "MIT License", "Changed"):
        assert owed in text
