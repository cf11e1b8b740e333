"""The token that opens a Ray cluster: where it lies, who may read it, and whether Ray uses it.

Whoever holds the token can run any code on the cluster. It is never printed and goes into no
configuration, log or checkpoint. Needs neither Ray nor torch.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from rss_rl.errors import ClusterError

MODE_VARIABLE = "RAY_AUTH_MODE"
TOKEN_VARIABLE = "RAY_AUTH_TOKEN"
PATH_VARIABLE = "RAY_AUTH_TOKEN_PATH"

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Token:
    """A token at hand.

    source  the variable or file it comes from, to be shown to the user
    path    of the file; None where a variable holds the token itself
    secret  the token, left out of the representation
    """

    source: str
    path: Path | None
    secret: str = field(repr=False)

    @property
    def mode(self) -> int | None:
        """Permission bits of the file, as in 0o600; None where there is no file."""
        return None if self.path is None else stat.S_IMODE(self.path.stat().st_mode)


def switched_off() -> bool:
    """Whether RAY_AUTH_MODE asks for clusters without a token."""
    return os.environ.get(MODE_VARIABLE, "token").lower() == "disabled"


def find_token() -> Token | None:
    """The token Ray would use: of RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token.

    Raises:
        ClusterError: a token file is there and cannot be used.
    """
    if secret := os.environ.get(TOKEN_VARIABLE, "").strip():
        return Token(TOKEN_VARIABLE, None, secret)
    path, source = _path()
    if not path.exists():
        return None
    try:
        secret = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(
            f"the token file cannot be read: {error}",
            where=source,
            remedy="Give yourself read access, or set RAY_AUTH_TOKEN_PATH to another file",
        ) from error
    if not secret:
        raise ClusterError(
            "the token file is empty", where=source, remedy="Remove it: a new one is made"
        )
    return Token(source, path, secret)


def ensure_token() -> tuple[Token, tuple[str, ...]]:
    """The token for a cluster of our own, made where there is none, and what was repaired.

    A file is made with mode 0600 in a directory of mode 0700, before Ray would make one that
    everybody on the machine can read. One that others can read is closed to them. In a home that
    cannot be written the token is given to this process and its children alone.

    Returns:
        the token, and a line for each thing that was changed or should be.

    Raises:
        ClusterError: the file that RAY_AUTH_TOKEN_PATH names cannot be made, or a file not read.
    """
    token = find_token()
    if token is None:
        path, source = _path()
        try:
            _make(path)
        except OSError as error:
            if PATH_VARIABLE not in os.environ:
                return _of_this_process(path, error)
            raise ClusterError(
                f"no token file can be made: {error}",
                where=source,
                remedy="Set RAY_AUTH_TOKEN_PATH to a file you may write",
            ) from error
        token = find_token()
        assert token is not None
    return token, _close(token)


def _of_this_process(path: Path, error: OSError) -> tuple[Token, tuple[str, ...]]:
    os.environ[TOKEN_VARIABLE] = secrets.token_hex(32)
    token = find_token()
    assert token is not None
    return token, (
        f"{path} cannot be made ({error.strerror}): this cluster's token is known to this process"
        " alone. Set RAY_AUTH_TOKEN_PATH to a file you may write, for others to join it",
    )


def _path() -> tuple[Path, str]:
    """The token file and how to call it."""
    if named := os.environ.get(PATH_VARIABLE):
        return Path(named), f"{PATH_VARIABLE} ({named})"
    path = Path.home() / ".ray" / "auth_token"
    return path, str(path)


def _make(path: Path) -> None:
    """Write a new token whole or not at all; one that another process made meanwhile stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
    finally:
        temporary.unlink()


def _close(token: Token) -> tuple[str, ...]:
    """Take the token file from group and others."""
    if token.path is None:
        return ()
    notes = []
    closing = [(token.path, 0o600)]
    if PATH_VARIABLE not in os.environ:  # ~/.ray is Ray's; a directory the user named is theirs
        closing.append((token.path.parent, 0o700))
    for path, mode in closing:
        found = stat.S_IMODE(path.stat().st_mode)
        if not found & _OTHERS:
            continue
        try:
            path.chmod(mode)
            notes.append(f"{path} had mode {found:04o}, now {mode:04o}: it guards the cluster")
        except OSError as error:
            notes.append(f"{path} has mode {found:04o}, others can read it: {error.strerror}")
    return tuple(notes)
