"""Assigning the rows of a file to splits, where its authors give fewer splits than are needed.

A cut is a keyed permutation of the rows: it depends only on the seed and the number of rows. That
of somebody's own table depends on the texts, so that copies of one are in one split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field, model_validator

from rss_rl.components import Options
from rss_rl.errors import DataError
from rss_rl.seeding import keyed_permutation, mix, stream_key
from rss_rl.types import Array

DEV_SHARE = 0.1
"""Share of the training rows that become the development split if there is none."""

_KEY_RANGE = 2.0**63


def _places(rows: int, seed: int, name: str) -> Array:
    """int64 [rows], position of each row in a random order."""
    if not rows:
        return np.zeros(0, dtype=np.int64)
    return keyed_permutation(stream_key(seed, "cut", name), rows, np.arange(rows))


def cut_rows(split: str, rows: int, *, name: str, seed: int, share: float = DEV_SHARE) -> Array:
    """bool [rows], True = in `split`, if train and dev are cut from one file, and test is not."""
    if split == "test":
        return np.ones(rows, dtype=bool)
    kept: Array = (_places(rows, seed, name) < round(share * rows)) == (split == "dev")
    return kept


def cut_texts(keys: Array, classes: Array, shares: Mapping[str, float], seed: int) -> Array:
    """The split of each row of a table: no text is in two splits, and train has every class.

    Args:
        keys: uint64 [B], see `rss_rl.data.checks.text_key`.
        classes: int64 [B], from 0; -1: a row that cannot be used.
        shares: of the rows, by split, also of those of each class. The first split is train, which
            also has the rows that cannot be used.

    Returns:
        int8 [B], places in `shares`. A split gets no more rows than its share, which one text may
        exceed, as each split has one if there are enough.
    """
    usable = classes >= 0
    kinds, drawn = classes[usable], mix(keys[usable] ^ np.uint64(stream_key(seed, "split")))
    texts, start, rows = np.unique(drawn, return_index=True, return_counts=True)  # [T]
    of = np.searchsorted(texts, drawn)  # [B], in less memory than `np.unique` takes for it
    first = np.full(classes.max(initial=-1) + 1, len(texts))
    np.minimum.at(first, kinds, of)  # of each class, a text for train
    free = np.ones(len(texts) + 1, bool)
    free[first] = False
    split, copies = np.zeros(len(texts), np.int8), rows.data
    parts = {n: share / sum(shares.values()) for n, share in enumerate(shares.values()) if n > 0}
    taken, seen = dict.fromkeys(parts, 0), 0
    # By number of copies, as quotas would go to texts without: they always fit.
    for text in np.lexsort((rows, kinds[start])).data:  # a list takes five times as much
        seen += copies[text]
        for part in parts if free[text] else ():
            if taken[part] + copies[text] <= parts[part] * seen + 0.5:
                split[text], free[text] = part, False
                taken[part] += copies[text]
                break
    for part in (part for part, count in taken.items() if count == 0):
        if (left := np.flatnonzero(free[:-1])).size:
            least = left[rows[left].argmin()]
            split[least], free[least] = part, False
    places = np.zeros(len(keys), np.int8)
    places[usable] = split[of]
    return places


def drawn_split(key: int, shares: Mapping[str, float]) -> str:
    """The split that a `stream_key` falls into; adding rows does not move others."""
    point = key / _KEY_RANGE * sum(shares.values())
    for split, share in shares.items():
        point -= share
        if point < 0:
            return split
    return next(iter(shares))


def cut_groups(groups: Sequence[str], shares: Mapping[str, float], seed: int) -> dict[str, str]:
    """The split of each group, so that no group is in two splits.

    Args:
        groups: names; equal names are one group.
        shares: of the groups, for each split; every split gets at least one.

    Raises:
        DataError: fewer groups than splits.
    """
    names = list(dict.fromkeys(groups))
    if len(names) < len(shares):
        raise DataError(
            f"{len(names)} group(s) of rows cannot be cut into {len(shares)} splits",
            remedy="Give more data, or files of all splits",
        )
    order = np.argsort(_places(len(names), seed, "groups"))
    owner: dict[str, str] = {}
    taken, wanted = 0, 0.0
    for left, (split, share) in zip(range(len(shares) - 1, -1, -1), shares.items(), strict=True):
        wanted += share * len(names)
        end = min(max(round(wanted), taken + 1), len(names) - left)
        owner |= {names[i]: split for i in order[taken : end if left else len(names)]}
        taken = end
    return owner


def fold_rows(split: str, rows: int, *, name: str, fold: int, folds: int, seed: int) -> Array:
    """bool [rows], True = in `split`, in a cross validation of which every row is in one fold.

    Fold `fold` of `folds` is the test split. Of the other rows, a share of DEV_SHARE, which follows
    the fold in the random order, is the development split, and the rest is the training split.
    """
    places = _places(rows, seed, name)
    start, end = (k * rows // folds for k in (fold, fold + 1))
    after = (places - end) % max(1, rows)  # [rows], 0 = first after the fold
    others = rows - (end - start)
    dev = round(DEV_SHARE * others)
    low, high = {"dev": (0, dev), "train": (dev, others), "test": (others, rows)}[split]
    kept: Array = (after >= low) & (after < high)
    return kept


class FoldOptions(Options):
    """Which fold of a cross validation is the test split."""

    fold: int = Field(default=0, ge=0)
    """Counted from 0."""
    folds: int = Field(default=10, ge=2)
    """How many there are."""

    @model_validator(mode="after")
    def _is_there(self) -> FoldOptions:
        if self.fold >= self.folds:
            raise ValueError(f"there is no fold {self.fold} of {self.folds}: they begin at 0")
        return self
