"""The catalogue of datasets and word vectors known by name: `catalogue.yaml`, read and checked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from rss_rl.errors import DataError, nearest


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Unpack(_Record):
    """Which files to unpack from a .zip, .tar.gz or .tgz archive, and the most that they may hold.

    members      patterns of names, matched from the right as by `PurePath.match`; each must be
                 found
    limit_mb     most megabytes of these files together (of a tar, of all its files, as all must be
                 read); more cannot be the dataset
    keep         how many last parts of a member's name to keep: 1 puts all files into one folder
    most         largest number of files
    """

    members: tuple[str, ...]
    limit_mb: int
    keep: int = 1
    most: int = 20


class RemoteFile(_Record):
    """A file to download.

    name    in the folder, and after the prefix of a mirror
    url     https address; None: it must be downloaded by hand, from a page, or from a mirror
    size    bytes, and sha256: of the file as published; None: not known for certain
    unpack  None: not an archive to unpack
    """

    name: str
    url: str | None = None
    size: int | None = None
    sha256: str | None = None
    unpack: Unpack | None = None


class Entry(_Record):
    """A dataset or a file of word vectors: what it is and where it comes from.

    name      for `rss-rl data fetch`
    task      NLI, relatedness, classification, ...
    licence   as its authors state it
    home      address of the page that describes it
    by_hand   what to download from which page, and what to put into the folder
    folder    name of the folder, below `downloads`, if not the entry's own; others may share it
    rows      by split, as published; empty: not known
    about_mb  megabytes of the download where the sizes of its files are not known; None: neither
    files     in the order of their download; empty: it cannot be fetched
    prepares  name for `rss-rl data prepare`; "" where it is not the entry's own name
    vectors   file given as --vectors, for word vectors; "" for datasets
    note      anything else to know
    """

    name: str
    task: str
    licence: str
    home: str
    by_hand: str
    folder: str = ""
    rows: Mapping[str, int] = {}
    about_mb: float | None = None
    files: tuple[RemoteFile, ...] = ()
    prepares: str = ""
    vectors: str = ""
    note: str = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """Files and folders that `prepare` reads."""
        kept = ((file.name,) if file.unpack is None else file.unpack.members for file in self.files)
        return tuple(dict.fromkeys(PurePath(name).parts[0] for names in kept for name in names))

    @property
    def default_folder(self) -> Path:
        """The default target folder."""
        return Path("downloads") / (self.folder or self.name)

    @property
    def megabytes(self) -> float | None:
        """Of the download; None: not known."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) / 1e6 if len(sizes) == len(self.files) > 0 else self.about_mb

    @property
    def direct(self) -> bool:
        """Whether every file has an address that needs no page, account or licence."""
        return bool(self.files) and all(file.url for file in self.files)

    def command(self, folder: Path) -> str:
        """The command that uses the files in `folder`."""
        where = shlex.quote(str(folder))
        if self.vectors:
            return (
                "rss-rl data prepare NAME --from FOLDER "
                f"--vectors {where}/{self.vectors} --out prepared/NAME"
            )
        name = self.prepares or self.name
        return f"rss-rl data prepare {name} --from {where} --out prepared/{name}"


@cache
def catalogue() -> Mapping[str, Entry]:
    """All entries by name, in the order of the file."""
    text = (files("rss_rl.data") / "catalogue.yaml").read_text(encoding="utf-8")
    tree: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return {name: Entry(name=name, **fields) for name, fields in tree.items()}


def entry(name: str) -> Entry:
    """The entry called `name`.

    Raises:
        DataError: there is none; names the nearest.
    """
    entries = catalogue()
    if name not in entries:
        what = f"there is nothing to fetch called '{name}'{nearest(name, list(entries))}"
        raise DataError(what, remedy="See `rss-rl data list`")
    return entries[name]
