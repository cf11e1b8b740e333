"""The authentication token of a Ray cluster: finding it, creating it, and protecting its file.

Anyone with the token can run arbitrary code on the cluster. It is never printed, nor written to a
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
    """An available token.

    source  the variable or file it comes from, for messages
    path    of the file; None if a variable holds the token itself
    secret  the token, excluded from the repr
    """

    source: str
    path: Path | None
    secret: str = field(repr=False)

    @property
    def mode(self) -> int | None:
        """Permission bits of the file, as in 0o600; None if there is no file."""
        return None if self.path is None else stat.S_IMODE(self.path.stat().st_mode)


def switched_off() -> bool:
    """Whether RAY_AUTH_MODE disables tokens."""
    return os.environ.get(MODE_VARIABLE, "token").lower() == "disabled"


def find_token() -> Token | None:
    """The token Ray would use: of RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token.

    Raises:
        ClusterError: a token file exists but cannot be used.
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
            "the token file is empty", where=source, remedy="Remove it: a new one is created"
        )
    return Token(source, path, secret)


def ensure_token() -> tuple[Token, tuple[str, ...]]:
    """The token for a cluster that we start, created if there is none, and notes for the user.

    The file is created with mode 0600 in a directory of mode 0700, before Ray would create a
    world-readable one. Access by others to an existing file is removed. If the home directory is
    not writable, only this process and its children get the token.

    Returns:
        the token, and a line for each permission that was changed or should be.

    Raises:
        ClusterError: RAY_AUTH_TOKEN_PATH's file cannot be created, or a file cannot be read.
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
                f"no token file can be created: {error}",
                where=source,
                remedy="Set RAY_AUTH_TOKEN_PATH to a writable file",
            ) from error
        token = find_token()
        assert token is not None
    return token, _close(token)


def _of_this_process(path: Path, error: OSError) -> tuple[Token, tuple[str, ...]]:
    os.environ[TOKEN_VARIABLE] = secrets.token_hex(32)
    token = find_token()
    assert token is not None
    return token, (
        f"{path} cannot be created ({error.strerror}): only this process has this cluster's token."
        " Set RAY_AUTH_TOKEN_PATH to a writable file, so that others can join it",
    )


def _path() -> tuple[Path, str]:
    """The token file, and its description for messages."""
    if named := os.environ.get(PATH_VARIABLE):
        return Path(named), f"{PATH_VARIABLE} ({named})"
    path = Path.home() / ".ray" / "auth_token"
    return path, str(path)


def _make(path: Path) -> None:
    """Atomically write a new token; one that another process created meanwhile is kept."""
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
    """Remove access to the token file by group and others."""
    if token.path is None:
        return ()
    notes = []
    closing = [(token.path, 0o600)]
    if PATH_VARIABLE not in os.environ:  # ~/.ray is Ray's; the user's own directory is not changed
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
