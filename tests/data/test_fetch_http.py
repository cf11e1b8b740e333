"""Downloads from a server that behaves badly: the bytes are the file's, or there is an error."""

from __future__ import annotations

import hashlib
import random
import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPMessage
from pathlib import Path
from urllib.request import Request

import pytest
from file_server import FileServer, Served, file_server

from rss_rl.data.fetching.download import Download, Retries, download
from rss_rl.data.fetching.redirect import check_address, opener
from rss_rl.errors import DataError

BODY = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(280_000)
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")
    with file_server() as made:
        made.files["file"] = Served(BODY)
        yield made


class Try:
    """Downloads of one file into one folder, and what they reported."""

    def __init__(self, server: FileServer, folder: Path) -> None:
        self.pauses: list[float] = []
        self.reports: list[tuple[int, int | None]] = []
        self.wanted = Download(f"{server.url}/file", folder / "file", by_hand="Take it by hand.")
        self.retries = Retries(timeout=0.5, plain=True, pause=self.pauses.append)

    def __call__(self, **known: object) -> bytes:
        wanted = replace(self.wanted, **known)  # type: ignore[arg-type]
        digest = download(wanted, self.retries, self._report)
        content = wanted.target.read_bytes()
        assert digest == hashlib.sha256(content).hexdigest()
        assert not self.part.exists()
        return content

    def _report(self, _: str, done: int, end: int | None) -> None:
        self.reports.append((done, end))

    @property
    def part(self) -> Path:
        return self.wanted.target.with_name("file.part")


@pytest.fixture
def attempt(server: FileServer, tmp_path: Path) -> Try:
    return Try(server, tmp_path)


def test_a_file_comes_whole(server: FileServer, attempt: Try) -> None:
    assert attempt(size=len(BODY), sha256=SHA) == BODY
    assert server.ranges() == [None]
    assert attempt.reports[-1] == (len(BODY), len(BODY))
    assert sorted(attempt.reports) == attempt.reports


@pytest.mark.parametrize("kept", [{}, {"etag": None, "modified": "Mon, 01 Jan 2024 00:00:00 GMT"}])
def test_a_cut_connection_is_gone_on_with(
    server: FileServer, attempt: Try, kept: dict[str, str | None]
) -> None:
    served = server.files["file"] = Served(BODY, cuts=[100_000, 50_000], **kept)  # type: ignore[arg-type]
    assert attempt() == BODY
    assert server.ranges() == [None, "bytes=100000-", "bytes=150000-"]
    assert server.asked[1][2] == (served.etag or served.modified)
    assert attempt.pauses == [1.0, 1.0]  # each attempt brought something


def test_a_server_without_ranges_starts_over(server: FileServer, attempt: Try) -> None:
    server.files["file"] = Served(BODY, ranges=False, cuts=[100_000])
    assert attempt() == BODY


@pytest.mark.parametrize(
    "changed",
    [Served(OTHER, etag='"second"'), Served(OTHER, etag=None), Served(OTHER, etag='W/"x"')],
)
def test_a_changed_file_starts_over(server: FileServer, attempt: Try, changed: Served) -> None:
    server.files["file"] = Served(BODY, etag=changed.etag and '"first"', cuts=[100_000] * 9)
    attempt.retries = replace(attempt.retries, attempts=1)
    with pytest.raises(DataError, match="broke off"):
        attempt()
    assert attempt.part.stat().st_size == 100_000
    server.files["file"] = changed
    assert attempt() == OTHER


def test_a_weak_etag_is_no_validator(server: FileServer, attempt: Try) -> None:
    server.files["file"] = Served(BODY, etag='W/"first"', cuts=[100_000])
    assert attempt() == BODY
    assert server.ranges() == [None, None]


def test_the_checksum_finds_bytes_of_two_files(server: FileServer, attempt: Try) -> None:
    """Without a validator the known SHA-256 allows resuming, and tells when it went wrong."""
    attempt.part.write_bytes(OTHER[:100_000])
    server.files["file"].etag = None
    assert attempt(sha256=SHA) == BODY
    assert server.ranges() == ["bytes=100000-", None]


def test_a_whole_part_needs_no_byte(server: FileServer, attempt: Try) -> None:
    attempt.part.write_bytes(BODY)
    assert attempt(sha256=SHA) == BODY
    assert server.ranges() == [f"bytes={len(BODY)}-"]
    attempt.part.write_bytes(BODY + b"more")
    assert attempt(sha256=SHA) == BODY


def test_another_part_than_asked_for_is_not_taken(server: FileServer, attempt: Try) -> None:
    server.files["file"] = Served(BODY, cuts=[100_000], skips=7)
    assert attempt() == BODY


def test_wrong_bytes_are_refused_and_removed(server: FileServer, attempt: Try) -> None:
    with pytest.raises(DataError, match="not the published 0000.*Take it by hand"):
        attempt(sha256="0" * 64)
    assert not attempt.wanted.target.exists()
    assert not attempt.part.exists()


def test_a_wrong_size_is_refused_before_a_byte_comes(server: FileServer, attempt: Try) -> None:
    with pytest.raises(DataError, match="300,000 bytes and not the published 299,999"):
        attempt(size=299_999)
    assert attempt.reports == []


def test_more_bytes_than_the_server_says_are_not_waited_for(
    server: FileServer, attempt: Try
) -> None:
    server.files["file"].length = len(BODY) + 5
    server.files["file"].ranges = False
    with pytest.raises(DataError, match="broke off 5 times.*5 bytes too early"):
        attempt()
    assert attempt.pauses == [1.0, 2.0, 4.0, 8.0]


def test_errors_of_the_moment_are_tried_again(server: FileServer, attempt: Try) -> None:
    server.files["file"].statuses = [500, 503, 429]
    assert attempt() == BODY
    assert attempt.pauses == [7.0, 7.0, 7.0]  # as the server asks


def test_retries_end(server: FileServer, attempt: Try) -> None:
    server.files["file"].statuses = [500] * 20
    with pytest.raises(DataError, match="broke off 5 times in a row.*500.*Take it by hand"):
        attempt()
    assert len(server.asked) == 5


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_refusal_is_final(server: FileServer, attempt: Try, code: int) -> None:
    server.files["file"].statuses = [code] * 9
    with pytest.raises(DataError, match=f"answered {code}.*Take it by hand"):
        attempt()
    assert len(server.asked) == 1


def test_redirects_are_followed_within_bounds(server: FileServer, attempt: Try) -> None:
    server.files["other"] = Served(BODY, cuts=[100_000])
    server.files["file"] = Served(redirect=f"{server.url}/other")
    assert attempt() == BODY
    assert server.asked[-1] == ("other", "bytes=100000-", '"first"')
    server.files["file"] = Served(redirect=f"{server.url}/file")
    with pytest.raises(DataError, match="answered 302"):
        attempt()
    for unsafe in ("file:///etc/passwd", "ftp://host/file"):
        server.files["file"] = Served(redirect=unsafe)
        with pytest.raises(DataError, match="not safe to follow|is not allowed"):
            attempt()


def test_a_redirect_never_leads_from_https_to_http() -> None:
    handlers = opener(plain=True).handlers  # type: ignore[attr-defined]
    (handler,) = (found for found in handlers if hasattr(found, "redirect_request"))

    def lead(old: str, new: str) -> object:
        return handler.redirect_request(Request(old), None, 302, "", HTTPMessage(), new)

    assert lead("https://host/a", "https://other/b")
    assert lead("http://host/a", "http://other/b")
    with pytest.raises(DataError, match="not safe to follow"):
        lead("https://host/a", "http://host/a")


def test_a_silent_or_slow_server_is_given_up(server: FileServer, attempt: Try) -> None:
    attempt.retries = replace(attempt.retries, timeout=0.2, attempts=1)
    server.files["file"] = Served(BODY, pause=0.5)
    with pytest.raises(DataError, match="timed out"):
        attempt()
    attempt.retries = replace(attempt.retries, slowest=10_000_000)
    server.files["file"] = Served(BODY, pause=0.05)
    with pytest.raises(DataError, match="below 10000000 bytes a second"):
        attempt()
    assert attempt.part.stat().st_size > 0


def test_no_way_to_the_address_is_said_at_once(attempt: Try) -> None:
    for url in ("http://127.0.0.1:1/file", "http://no-such-host.invalid/file"):
        with pytest.raises(DataError) as error:
            attempt(url=url)
        assert url in str(error.value)
        assert "cannot be reached" in str(error.value)
        assert "Take it by hand" in str(error.value)
    assert attempt.pauses == []


def test_http_needs_to_be_allowed() -> None:
    for url in ("http://host/x", "https:///x", "ftp://host/x", "host/x", "https://host:x/"):
        with pytest.raises(DataError, match="is no https"):
            check_address(url, plain=False)
    check_address("https://host/x", plain=False)
    check_address("http://host/x", plain=True)


def test_a_full_disk_is_said_before(
    server: FileServer, attempt: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(attempt.part.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match="room for 1,000 bytes, and 300,000 are to come"):
        attempt()


def test_a_disk_that_fills_up_keeps_what_came(attempt: Try) -> None:
    """The kernel refuses bytes beyond a limit, as a full disk does; with more room it continues."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(DataError, match="cannot be written.*Free disk space.*is kept"):
            attempt()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert attempt.part.stat().st_size == 200_000
    assert attempt() == BODY


def test_a_folder_that_cannot_be_written(attempt: Try) -> None:
    attempt.part.mkdir()  # root may write anywhere: a directory in the way stands for a refusal
    with pytest.raises(DataError, match="cannot be written.*--to"):
        attempt()
