"""Downloading an entry of the catalogue with pooch, and unpacking what `prepare` reads.

A file that is in the folder already, downloaded before or put there by hand, is checked and used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import pooch
import requests

from rss_rl.data.catalogue import Entry, RemoteFile
from rss_rl.data.sources import Progress
from rss_rl.data.unpack import unpack
from rss_rl.durable import disk_errors, file_sha256
from rss_rl.errors import DataError
from rss_rl.version import VERSION

_CHUNK = 1 << 18
_TIMEOUT_S = 20
"""To connect, and to wait for a byte."""
_MORE_TRIES = 2
_MOST_BYTES = 16 << 30
"""Limit for a file of unknown size."""
pooch.get_logger().setLevel("ERROR")  # what it says of retries is not for users


@dataclass(frozen=True)
class Fetched:
    """A file that was fetched.

    name     in the catalogue
    source   its address; "" if it was in the folder already
    size     bytes, and sha256: of the file
    checked  whether the SHA-256 was compared with a published one
    """

    name: str
    source: str
    size: int
    sha256: str
    checked: bool


def fetch(
    entry: Entry,
    folder: Path,
    *,
    mirror: str | None = None,
    force: bool = False,
    progress: Progress = lambda what, done, end: None,
) -> list[Fetched]:
    """Fetch the files of `entry` into `folder`, and unpack them there.

    Args:
        mirror: address of a copy: files are taken from `mirror`/NAME. http is allowed.
        force: download existing files again.

    Raises:
        DataError: the entry cannot be fetched, an address does not answer, a file is not the
            published one, or the disk refuses.
    """
    by_hand = f"By hand ({entry.home}): {entry.by_hand}"
    if mirror is not None:
        check_address(mirror, plain=True)
    if not entry.files:
        raise DataError(f"{entry.name} has no address to fetch it from", remedy=by_hand)
    names = ", ".join(file.name for file in entry.files)
    by_hand += f"; put {names} into {folder} and run this command again. "
    by_hand += "Or name a copy with --mirror"
    remedy = "Free disk space, or name another directory with --to"
    with disk_errors(folder, "cannot be written", remedy, DataError):
        done = []
        for file in entry.files:
            url = f"{mirror.rstrip('/')}/{quote(file.name)}" if mirror else file.url or ""
            path = folder / file.name
            present = path.is_file() and not force
            if not present:
                path.unlink(missing_ok=True)
                if not url:
                    what = f"{file.name} of {entry.name} has no address for a direct download"
                    raise DataError(what, where=entry.home, remedy=by_hand)
                check_address(url, plain=mirror is not None)
                _download(file, url, folder, by_hand, progress)
            size, digest = path.stat().st_size, file_sha256(path)
            if file.sha256 not in (None, digest):
                raise DataError(
                    f"is not the published file: it has the SHA-256 {digest}",
                    where=str(path),
                    remedy="Remove it, or replace it by a download with --force",
                )
            if file.unpack is not None:
                progress(f"unpacking {file.name}", 0, None)
                unpack(path, file.unpack, folder)
            source = "" if present else url
            done.append(Fetched(file.name, source, size, digest, file.sha256 is not None))
    return done


def check_address(url: str, plain: bool) -> None:
    """Check that `url` is a complete https address (or http if `plain`).

    Raises:
        DataError: it is not.
    """
    try:
        parts = urlsplit(url)
        fine = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fine = False
    if not fine or parts.scheme not in (("https", "http") if plain else ("https",)):
        known = "http:// or https://" if plain else "https://"
        raise DataError(f"is no {known} address", where=url, remedy=f"Give {known}host/folder")


def check_redirect(answer: requests.Response, *_: Any, **__: Any) -> None:
    """A hook of `requests`: no redirect from https to http, or to what is no web address.

    Raises:
        DataError: where it leads.
    """
    if not answer.is_redirect:
        return
    target = urljoin(answer.url, answer.headers["location"])
    try:
        check_address(target, plain=answer.url.startswith("http:"))
    except DataError as error:
        raise DataError(
            f"redirects to {target}, which is not safe to follow",
            where=answer.url,
            remedy="Download the file by hand, or name a copy with --mirror",
        ) from error


def _download(file: RemoteFile, url: str, folder: Path, by_hand: str, progress: Progress) -> None:
    """Download a file into the folder, where it appears once its checksum is right."""

    def over_http(url: str, output_file: Any, pooch_: Any) -> None:
        pooch.HTTPDownloader(
            progressbar=_Meter(file, url, progress),
            chunk_size=_CHUNK,
            timeout=_TIMEOUT_S,
            headers={"User-Agent": f"rss-rl/{VERSION}", "Accept-Encoding": "identity"},
            hooks={"response": check_redirect},
        )(url, output_file, pooch_)

    with _transport(url, by_hand):
        pooch.create(
            path=folder,
            base_url="",
            registry={file.name: file.sha256},
            urls={file.name: url},
            retry_if_failed=_MORE_TRIES,
        ).fetch(file.name, downloader=over_http)


class _Meter:
    """What pooch takes for a progress bar: reports how far a download is, and ends one too long."""

    def __init__(self, file: RemoteFile, url: str, report: Progress) -> None:
        self._file, self._url, self._report = file, url, report
        self._done = self._total = 0

    @property
    def total(self) -> int:
        """Bytes as the server says; 0 if it does not."""
        return self._total

    @total.setter
    def total(self, said: int) -> None:
        self._total = said
        if said and self._file.size not in (None, said):
            raise self._wrong(f"has {said:,} bytes and not the published {self._file.size:,}")

    def update(self, received: int) -> None:
        """Count a chunk, of which the last may be shorter than said."""
        self._done += received
        if self._done - received > (self._file.size or self._total or _MOST_BYTES):
            raise self._wrong("sends more bytes than it should")
        self._report(self._file.name, min(self._done, self._total or self._done), self._total)

    def reset(self) -> None:
        """Start over, as pooch does before it reports the whole."""
        self._done = 0

    def close(self) -> None:
        """The download is complete."""

    def _wrong(self, what: str) -> DataError:
        remedy = "It is another file and was not kept; name a copy with --mirror"
        return DataError(what, where=self._url, remedy=remedy)


@contextmanager
def _transport(url: str, by_hand: str) -> Iterator[None]:
    """Re-raise errors of pooch and requests as a `DataError`."""
    try:
        yield
    except requests.RequestException as error:
        remedy = f"Check the connection, the proxy (HTTPS_PROXY) and the address. {by_hand}"
        raise DataError(f"cannot be downloaded ({error})", where=url, remedy=remedy) from error
    except ValueError as error:  # of pooch: another checksum
        what = f"is not the published file ({error})"
        raise DataError(what, where=url, remedy=f"It was removed; try again. {by_hand}") from error
