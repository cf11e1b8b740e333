"""Errors a user can act on: each says where, what is wrong, and what to do about it."""

from __future__ import annotations

from difflib import get_close_matches


class RssError(Exception):
    """Base of all expected errors; the command line prints it without a traceback.

    Args:
        what: what is wrong, one sentence without a full stop.
        where: the file, row, key, actor or phase it was found in.
        remedy: what the user can do.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__(what, where, remedy)

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        stop = "" if self.what.endswith("?") else "."
        suffix = f"{stop} {self.remedy}" if self.remedy else ""
        return f"{prefix}{self.what}{suffix}"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default reduction, and errors cross processes.
        return (_rebuild, (type(self), self.what, self.where, self.remedy))


def _rebuild(kind: type[RssError], what: str, where: str, remedy: str) -> RssError:
    return kind(what, where=where, remedy=remedy)


class ConfigError(RssError):
    """A configuration file, key or value that cannot be used."""


class DataError(RssError):
    """A source file, row or prepared dataset that cannot be used."""


class CheckpointError(RssError):
    """A run directory or checkpoint that cannot be read or written."""


class NonFiniteError(RssError):
    """A loss, gradient or log-prob that is NaN or infinite."""


class ResourceError(RssError):
    """A resource that the machine does not have enough of."""


class ComponentError(RssError):
    """A component that violates the contract of its kind."""


class SamplerError(RssError):
    """A sampler that failed, hung or could not be started."""


class LearnerError(RssError):
    """A learner process that failed, hung or could not be started."""


class LearnersLostError(LearnerError):
    """Learners died or hung; updates since the last checkpoint have to be repeated."""


class ClusterError(RssError):
    """A Ray cluster that does not answer, refuses, or must not be trusted."""


class StorageError(RssError):
    """A file or directory on a storage path that cannot be read or written."""


def nearest(name: str, known: list[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known name closest to `name`, else an empty string."""
    match = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean '{match[0]}'?" if match else ""
