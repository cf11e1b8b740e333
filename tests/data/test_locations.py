"""Prepared data at a URI: fetched when used, whole, once for all processes."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from invoking import invoke

from rss_rl.data import shard, staging
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.data.store import Split, open_prepared
from rss_rl.errors import DataError, RssError, StorageError
from rss_rl.storage import Storage

ROWS = 60


@pytest.fixture
def origin(
    tmp_path: Path, list_source: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A prepared directory of several shards."""
    monkeypatch.setattr(staging, "BLOCK_ROWS", 5)
    monkeypatch.setattr(shard, "SHARD_BYTES", 1)
    draw = np.random.default_rng(0)
    rows = [
        RawExample(str(i), (tuple(f"w{n}" for n in draw.integers(0, 30, 5)),), "ab"[i % 2])
        for i in range(ROWS)
    ]
    out = tmp_path / "origin"
    prepare(list_source({"train": rows}), out, dim=2)
    assert len(list(out.glob("train-*.arrow"))) > 9
    return out


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were downloaded."""
    found: list[str] = []
    download = Storage.download

    def counted(self: Storage, name: str, *more: Any) -> None:
        found.append(name)
        download(self, name, *more)

    monkeypatch.setattr(Storage, "download", counted)
    return found


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RSS_RL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


def assert_equal(split: Split, other: Split) -> None:
    one, two = split.batch(range(len(split))), other.batch(range(len(other)))
    np.testing.assert_array_equal(one.tokens[0], two.tokens[0])
    np.testing.assert_array_equal(one.labels, two.labels)


def test_a_uri_is_read_like_a_directory(origin: Path, cache: Path) -> None:
    fsspec.filesystem("memory").put(str(origin), "/some/where", recursive=True)
    local = open_prepared(origin)
    for uri in (origin.as_uri(), "memory://some/where"):
        shutil.rmtree(cache, ignore_errors=True)
        remote = open_prepared(uri)
        assert remote.location == uri
        assert remote.folder.parent == cache
        assert remote.manifest == local.manifest
        assert remote.vocabulary == local.vocabulary
        np.testing.assert_array_equal(remote.vectors(), local.vectors())
        split = remote.split("train")
        assert_equal(split, local.split("train"))
        assert_equal(pickle.loads(pickle.dumps(split)), split)
    fsspec.filesystem("memory").rm("/some", recursive=True)


def test_what_was_fetched_is_not_fetched_again(origin: Path, downloads: list[str]) -> None:
    """Also if it is opened at once; and where the storage does not answer any more."""
    with ThreadPoolExecutor(3) as pool:
        splits = list(pool.map(lambda _: open_prepared(origin.as_uri()).split("train"), range(3)))
    assert sorted(downloads) == sorted(open_prepared(origin).manifest.files())
    shutil.rmtree(origin)
    assert_equal(pickle.loads(pickle.dumps(splits[0])), splits[1])


def test_bad_bytes_are_an_error_until_the_copy_is_deleted(origin: Path, cache: Path) -> None:
    shard = origin / "train-00000.arrow"
    good = shard.read_bytes()
    shard.write_bytes(bytes(len(good)))
    prepared = open_prepared(origin.as_uri())
    with pytest.raises(DataError, match=r"train-00000\.arrow: its SHA-256 .*Delete .*, a copy of"):
        prepared.split("train").batch([0])
    shard.write_bytes(good[:-1])
    shutil.rmtree(prepared.folder)
    with pytest.raises(StorageError, match=r"train-00000\.arrow: has "):
        open_prepared(origin.as_uri())
    assert not list(cache.glob("*/*"))
    shard.write_bytes(good)
    open_prepared(origin.as_uri()).split("train").batch([0])


def test_data_that_were_replaced_are_not_read_on(origin: Path, cache: Path) -> None:
    dumped = pickle.dumps(open_prepared(origin.as_uri()).split("train"))
    shutil.rmtree(cache)
    path = origin / "manifest.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(DataError, match="was replaced meanwhile"):
        pickle.loads(dumped)


def run(*arguments: object) -> str:
    result = invoke(["data", *arguments])
    if isinstance(result.exception, RssError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_preparing_to_a_uri_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--out is no directory"):
        run("prepare", "planted", "--out", (tmp_path / "target").as_uri())


def test_what_a_uri_holds_is_shown(origin: Path) -> None:
    assert re.search(rf"^train +{ROWS} ", run("show", origin.as_uri()), re.MULTILINE)
