"""Downloading one file over HTTP: streamed to a part, resumed after errors, checked, then renamed.

A part is resumed by `Range` with `If-Range`, so that a server whose file has changed sends the new
one from its beginning. Without a validator only a known SHA-256 makes resuming safe.
"""

from __future__ import annotations

import http.client
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rss_rl.data.fetching.part import Part, disk_refuses
from rss_rl.data.fetching.redirect import opener
from rss_rl.data.staging import Progress
from rss_rl.errors import DataError
from rss_rl.version import VERSION

_CHUNK = 1 << 18
_LONGEST_PAUSE_S = 60.0
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
_MOST_BYTES = 16 << 30
"""Limit for a file of unknown size."""


@dataclass(frozen=True)
class Retries:
    """Timeouts and retries of a download.

    timeout   seconds to connect, and to wait for a byte
    slowest   bytes per second; a connection slower than this for `timeout` seconds is dropped
    attempts  failures in a row, without progress, after which the download fails
    backoff   seconds before the second attempt, doubled before every further one
    plain     whether http (not only https) is allowed
    pause     function that waits for some seconds
    """

    timeout: float = 20.0
    slowest: int = 1000
    attempts: int = 5
    backoff: float = 1.0
    plain: bool = False
    pause: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Download:
    """What to download: from `url` to `target`; size in bytes and SHA-256 where known.

    by_hand  for messages: what to do if the address does not answer
    """

    url: str
    target: Path
    size: int | None = None
    sha256: str | None = None
    by_hand: str = ""


class _Broken(Exception):
    """A failure that may be temporary; the server asked to wait `wait` seconds."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def download(wanted: Download, retries: Retries, progress: Progress) -> str:
    """Download a file, resuming an existing part, and return its SHA-256.

    Raises:
        DataError: the address does not answer or refuses, the file has the wrong size or SHA-256,
            or the disk refuses. The part is kept for the next time, unless it is wrong.
    """
    part = Part(wanted.target)
    resumed = part.length() > 0
    _Transfer(wanted, part, retries, progress).run()
    digest = part.sha256()
    if wanted.sha256 in (None, digest):
        part.finish()
        return digest
    part.forget()
    if resumed:  # the older bytes may be from another file
        return download(wanted, retries, progress)
    raise DataError(
        f"has the SHA-256 {digest} and not the published {wanted.sha256}: it was damaged in "
        "transit or is another file",
        where=wanted.url,
        remedy=f"It was removed; try again. {wanted.by_hand}",
    )


class _Transfer:
    """The attempts at downloading one file."""

    def __init__(self, wanted: Download, part: Part, retries: Retries, progress: Progress) -> None:
        self._wanted, self._part, self._retries = wanted, part, retries
        self._progress = progress
        self._answered = False
        self._open = opener(plain=retries.plain).open

    def run(self) -> None:
        """Try until the part is complete."""
        furthest, failures = self._part.length(), 0
        while True:
            try:
                self._attempt()
                return
            except _Broken as broken:
                grown = self._part.length() > furthest
                furthest = max(furthest, self._part.length())
                failures = 1 if grown else failures + 1
                if failures >= self._retries.attempts:
                    raise self._error(
                        f"broke off {failures} times in a row ({broken})",
                        "The same command resumes where it stopped.",
                    ) from broken
                wait = max(broken.wait, self._retries.backoff * 2 ** (failures - 1))
                self._retries.pause(min(wait, _LONGEST_PAUSE_S))

    def _error(self, what: str, remedy: str) -> DataError:
        remedy = f"{remedy} {self._wanted.by_hand}".strip()
        return DataError(what, where=self._wanted.url, remedy=remedy)

    def _attempt(self) -> None:
        start = self._part.length()
        validator = self._part.validator(self._wanted.url)
        if start and validator is None and self._wanted.sha256 is None:
            start = 0
        with self._request(start, validator) as answer:
            self._answered = True
            if answer.status == 416:
                self._past_the_end(answer, start)
                return
            start, total = self._begin(answer, start)
            self._check_size(total)
            self._check_room(total, start)
            self._stream(answer, start, total)

    def _request(self, start: int, validator: str | None) -> Any:
        headers = {"User-Agent": f"rss-rl/{VERSION}", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
            if validator:
                headers["If-Range"] = validator
        request = urllib.request.Request(self._wanted.url, headers=headers)
        try:
            return self._open(request, timeout=self._retries.timeout)
        except urllib.error.HTTPError as error:
            return self._refusal(error)
        except urllib.error.URLError as error:
            if self._answered:
                raise _Broken(str(error.reason)) from error
            raise self._error(
                f"cannot be reached ({error.reason})",
                "Check the connection and the proxy (HTTPS_PROXY).",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(f"no answer: {error or type(error).__name__}") from error

    def _refusal(self, error: urllib.error.HTTPError) -> Any:
        if error.code == 416:
            return error
        self._answered = True
        wait = error.headers.get("Retry-After", "") if error.headers else ""
        error.close()
        said = f"the server answered {error.code} {error.reason}".strip()
        if error.code in _TEMPORARY:
            raise _Broken(said, float(wait) if wait.isdecimal() else 0.0) from error
        raise self._error(said, "The file may have moved.") from error

    def _past_the_end(self, answer: Any, start: int) -> None:
        """Handle status 416: the part is complete, or of another file."""
        total = re.fullmatch(r"bytes \*/(\d+)", answer.headers.get("Content-Range") or "")
        if total is None or int(total[1]) != start or self._wanted.size not in (None, start):
            self._part.forget()
            raise _Broken("the part did not fit the server's file")

    def _begin(self, answer: Any, start: int) -> tuple[int, int | None]:
        """The byte at which the answer starts, and the size of the whole file if known."""
        if answer.status == 206:
            span = re.fullmatch(
                r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range") or ""
            )
            if span is None or int(span[1]) != start:
                self._part.forget()
                raise _Broken("the server sent another range than requested")
            return start, None if span[2] == "*" else int(span[2])
        etag = answer.headers.get("ETag") or ""
        # A weak ETag does not promise the same bytes, and If-Range may not name one.
        strong = etag if etag and not etag.startswith("W/") else None
        self._part.begin(self._wanted.url, strong or answer.headers.get("Last-Modified"))
        length = answer.headers.get("Content-Length") or ""
        return 0, int(length) if length.isdecimal() else None

    def _check_size(self, total: int | None) -> None:
        if total is None or self._wanted.size in (None, total):
            return
        self._part.forget()
        raise self._error(
            f"has {total:,} bytes and not the published {self._wanted.size:,}: it is another file",
            "It was not downloaded.",
        )

    def _check_room(self, total: int | None, start: int) -> None:
        folder = self._wanted.target.parent
        with disk_refuses(folder):
            free = shutil.disk_usage(folder).free
        if total is not None and total - start > free:
            raise DataError(
                f"has room for {free:,} bytes, and {total - start:,} are to come",
                where=str(folder),
                remedy="Free disk space, or name a directory with more in --to",
            )

    def _stream(self, answer: Any, start: int, total: int | None) -> None:
        done, end = start, total or self._wanted.size
        with disk_refuses(self._part.path):
            # Unbuffered: received bytes are in the file even if the process is killed.
            file = self._part.path.open("r+b", buffering=0)
            file.seek(start)
        with file:
            clock, mark = time.monotonic(), done
            while chunk := _read(answer):
                with disk_refuses(self._part.path):
                    while chunk:
                        chunk = chunk[file.write(chunk) :]
                done = file.tell()
                self._progress(self._wanted.target.name, done, end)
                if done > (end or _MOST_BYTES):
                    self._part.forget()
                    raise self._error("sends more bytes than it should", "")
                passed = time.monotonic() - clock
                if passed >= self._retries.timeout:
                    if done - mark < passed * self._retries.slowest:
                        raise _Broken(f"below {self._retries.slowest} bytes a second")
                    clock, mark = time.monotonic(), done
        if end is not None and done < end:
            raise _Broken(f"the connection ended {end - done:,} bytes too early")


def _read(answer: Any) -> bytes:
    try:
        return bytes(answer.read1(_CHUNK))
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(str(error) or type(error).__name__) from error
