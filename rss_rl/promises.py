"""What contract tests ask of a component of any kind; see `rss_rl.testing`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, cast

from rss_rl.errors import RssError


class Promises:
    """A component, by its name, that breaks its promises with errors of one type.

    Args:
        subject: said before what is wrong, such as `the metric`.
    """

    def __init__(self, kind: type[RssError], name: str, subject: str = "") -> None:
        self._kind, self._name = kind, name
        self._subject = f"{subject} " if subject else ""

    def require(self, holds: object, what: str, remedy: str) -> None:
        """Raise unless a promise holds, with what to do about it."""
        if not bool(holds):
            raise self._kind(f"{self._subject}{what}", where=self._name, remedy=remedy)

    def dumped(self, thing: Any) -> bytes:
        """As it crosses to another process, where alone some things can be loaded."""
        return cast(bytes, self._crossing(lambda: pickle.dumps(thing)))

    def pickled(self, thing: Any) -> Any:
        """Its copy, as it crosses processes."""
        return self._crossing(lambda: pickle.loads(pickle.dumps(thing)))

    def _crossing(self, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except Exception as error:  # whatever its own reduction raises
            remedy = "Keep lambdas, local classes and open files out of its attributes"
            self.require(False, f"cannot be pickled: {error}", remedy)
