"""Helpers of the contract tests for components of all kinds; see `rss_rl.testing`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, cast

from rss_rl.errors import RssError


class Promises:
    """Raises errors of one type where the component called `name` violates its contract.

    Args:
        subject: put before each message, such as `the metric`.
    """

    def __init__(self, kind: type[RssError], name: str, subject: str = "") -> None:
        self._kind, self._name = kind, name
        self._subject = f"{subject} " if subject else ""

    def require(self, holds: object, what: str, remedy: str) -> None:
        """Raise an error with `what` and `remedy` unless `holds`."""
        if not bool(holds):
            raise self._kind(f"{self._subject}{what}", where=self._name, remedy=remedy)

    def dumped(self, thing: Any) -> bytes:
        """`thing` pickled, without loading it: some can be loaded in another process only."""
        return cast(bytes, self._crossing(lambda: pickle.dumps(thing)))

    def pickled(self, thing: Any) -> Any:
        """A copy of `thing`, pickled and loaded."""
        return self._crossing(lambda: pickle.loads(pickle.dumps(thing)))

    def _crossing(self, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except Exception as error:  # its __reduce__ may raise anything
            remedy = "Keep lambdas, local classes and open files out of its attributes"
            self.require(False, f"cannot be pickled: {error}", remedy)
