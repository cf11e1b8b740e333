"""The token: found where Ray looks, never shown, and not shared with other users."""

from __future__ import annotations

from pathlib import Path

import pytest

from rss_rl.cluster.auth import ensure_token, find_token
from rss_rl.errors import ClusterError


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The token file of the home directory; without one."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    return tmp_path / ".ray" / "auth_token"


def write(file: Path, text: str, mode: int = 0o600) -> Path:
    file.write_text(text)
    file.chmod(mode)
    return file


def test_without_one_a_cluster_gets_its_own(file: Path) -> None:
    assert find_token() is None
    ensure_token()
    token = find_token()
    assert token is not None
    assert (token.source, len(token.secret)) == ("RAY_AUTH_TOKEN", 64)
    assert token.secret not in repr(token) + str(token)
    ensure_token()
    assert find_token() == token
    assert not file.exists()


def test_one_that_others_can_read_is_not_used_here(file: Path) -> None:
    write(file, "mine\n", 0o644)
    found = find_token()
    assert found is not None
    assert (found.secret, found.is_private) == ("mine", False)
    ensure_token()
    assert find_token() != found
    assert file.read_text() == "mine\n"


def test_the_order_of_places(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Ray."""
    write(file, "of home")
    ensure_token()
    assert getattr(find_token(), "secret", "") == "of home"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(write(file.with_name("other"), "named")))
    assert getattr(find_token(), "secret", "") == "named"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "in-the-variable")
    assert getattr(find_token(), "secret", "") == "in-the-variable"


@pytest.mark.parametrize("content", [b"\n", b"\xff\xfe"])
def test_one_that_cannot_be_used(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ClusterError, match="token file"):
        ensure_token()
