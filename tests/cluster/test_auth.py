"""The token file: made closed, closed where it was open, found where Ray looks, never shown."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from rss_rl.cluster.auth import ensure_token, find_token
from rss_rl.errors import ClusterError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_one_is_closed(home: Path) -> None:
    assert find_token() is None
    token, notes = ensure_token()
    assert token.path == home / ".ray" / "auth_token"
    assert (mode(token.path), mode(token.path.parent), notes) == (0o600, 0o700, ())
    assert list(token.path.parent.iterdir()) == [token.path]
    assert len(token.secret) == 64
    assert token.secret not in repr(token) + str(token)


def test_it_stays_and_others_differ(home: Path) -> None:
    first, _ = ensure_token()
    assert ensure_token() == (first, ())
    (home / ".ray" / "auth_token").unlink()
    assert ensure_token()[0].secret != first.secret


def test_an_open_one_is_closed_and_reported(home: Path) -> None:
    file = home / ".ray" / "auth_token"
    file.parent.mkdir(mode=0o755)
    file.write_text("mine\n")
    file.chmod(0o644)
    token, notes = ensure_token()
    assert token.secret == "mine"
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert [note.split()[0] for note in notes] == [str(file), str(file.parent)]
    assert "0644" in notes[0]
    assert "mine" not in "".join(notes)


def test_the_order_of_places(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Ray."""
    ensure_token()
    file = home / "elsewhere" / "token"
    file.parent.mkdir(mode=0o755)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    named, notes = ensure_token()
    assert (named.path, mode(file), notes) == (file, 0o600, ())
    assert mode(file.parent) == 0o755  # the user's own directory is left alone
    monkeypatch.setenv("RAY_AUTH_TOKEN", "in-the-variable")
    held, _ = ensure_token()
    assert (held.source, held.secret, held.path) == ("RAY_AUTH_TOKEN", "in-the-variable", None)


def test_one_made_meanwhile_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs may be started at once: both must end with the same token."""
    real = Path.mkdir

    def race(path: Path, *arguments: object, **options: object) -> None:
        real(path, *arguments, **options)  # type: ignore[arg-type]
        (path / "auth_token").write_text("of the other")
        (path / "auth_token").chmod(0o600)

    monkeypatch.setattr(Path, "mkdir", race)
    assert ensure_token()[0].secret == "of the other"
    assert len(list((home / ".ray").iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_one_that_cannot_be_used(home: Path, content: bytes) -> None:
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_bytes(content)
    with pytest.raises(ClusterError, match="token file"):
        ensure_token()


def test_a_home_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster of a process needs no file: who starts it and its children know the token."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")  # put back afterwards
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    (home / ".ray").touch()
    token, notes = ensure_token()
    assert token.path is None
    assert len(token.secret) == 64
    assert token.secret not in repr(token) + "".join(notes)
    assert "RAY_AUTH_TOKEN_PATH" in notes[0]
    assert ensure_token() == (token, ())


def test_no_place_for_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "file" / "token"))
    with pytest.raises(ClusterError, match="no token file can be created.*RAY_AUTH_TOKEN_PATH"):
        ensure_token()
