"""AG's news in its official form: train.csv and test.csv without a header, class 1 to 4 first."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pydantic import Field

from rss_rl.components import Options
from rss_rl.data.sources import (
    BadRow,
    RawExample,
    Source,
    SourceComponent,
    SourceRequest,
    files_in,
)
from rss_rl.types import LabelSpec

_CLASSES = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}


class AgNewsOptions(Options):
    """What is read."""

    title_only: bool = Field(default=False, description="Leave the description out.")


def _read(split: str, path: Path, *, title_only: bool) -> Iterator[RawExample | BadRow]:
    """Stream one split; a tenth of the training rows is dev."""
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if split != "test" and (number % 10 == 0) != (split == "dev"):
                continue
            if len(row) != 3 or row[0] not in _CLASSES:
                yield BadRow(str(path), number, "is not class, title and description")
                continue
            text = row[1] if title_only else f"{row[1]}. {row[2]}"
            yield RawExample(str(number), (text,), _CLASSES[row[0]], None, str(path), number)


def _build(request: SourceRequest, options: AgNewsOptions) -> Source:
    names = {"train": "train.csv", "dev": "train.csv", "test": "test.csv"}
    files = files_in(request.folder("ag-news", "train.csv"), names)
    labels = LabelSpec("classes", names=tuple(_CLASSES.values()))
    return Source("ag-news", 1, labels, files, partial(_read, title_only=options.title_only))


AG_NEWS = SourceComponent(
    name="ag-news",
    help="AG's news.",
    needs="--from FOLDER with train.csv and test.csv",
    options=AgNewsOptions,
    build=_build,
)
