"""Opening addresses: https unless http is allowed, and redirects within bounds."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPMessage
from typing import IO
from urllib.parse import urlsplit

from rss_rl.errors import DataError


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


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows at most five redirects, and none from https to http."""

    max_redirections = 5
    max_repeats = 2

    def __init__(self, plain: bool) -> None:
        self._plain = plain

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The request for the new address.

        Raises:
            DataError: it is less safe than the old one, or not a web address.
        """
        try:
            check_address(newurl, self._plain and req.type == "http")
        except DataError as error:
            raise DataError(
                f"redirects to {newurl}, which is not safe to follow",
                where=req.full_url,
                remedy="Download the file by hand, or name a copy with --mirror",
            ) from error
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def opener(plain: bool) -> urllib.request.OpenerDirector:
    """Opens http and https only, through the proxies that the environment names."""
    made = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(plain),
    ):
        made.add_handler(handler)
    return made
