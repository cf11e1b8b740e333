"""Prepared data at a URI: fetched when used, whole, once for all processes."""

from __future__ import annotations

import http.server
import json
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from invoking import invoke

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.data.store import Split, open_prepared
from rss_rl.data.upload import upload
from rss_rl.errors import DataError, RssError

ROWS = 60


class _Server(http.server.ThreadingHTTPServer):
    """Serves a folder and counts what is asked for."""

    daemon_threads = True
    folder: Path
    failing = False

    def __init__(self) -> None:
        self.got: Counter[str] = Counter()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: _Server

    def translate_path(self, path: str) -> str:
        return str(self.server.folder / path.lstrip("/"))

    def do_GET(self) -> None:
        self.server.got[self.path.lstrip("/")] += 1
        if self.server.failing:
            self.send_error(500)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def origin(tmp_path: Path, list_source: Callable[..., Any]) -> Path:
    """A prepared directory of several shards."""
    draw = np.random.default_rng(0)
    rows = [
        RawExample(str(i), (tuple(f"w{n}" for n in draw.integers(0, 30, 5)),), "ab"[i % 2])
        for i in range(ROWS)
    ]
    out = tmp_path / "origin"
    prepare(list_source({"train": rows}), out, dim=2, batch_rows=5, shard_mb=0.001)
    assert len(list(out.glob("train-*.arrow"))) > 9
    return out


@pytest.fixture
def server(origin: Path) -> Iterator[_Server]:
    served = _Server()
    served.folder = origin
    thread = threading.Thread(target=served.serve_forever, args=(0.02,))
    thread.start()
    yield served
    served.shutdown()
    served.server_close()
    thread.join(timeout=10)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RSS_RL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


def assert_equal(split: Split, other: Split) -> None:
    one, two = split.batch(range(len(split))), other.batch(range(len(other)))
    np.testing.assert_array_equal(one.tokens[0], two.tokens[0])
    np.testing.assert_array_equal(one.labels, two.labels)


def shards_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("*/train*.arrow"))


@pytest.mark.parametrize("kind", ["file", "memory", "http"])
def test_a_uri_is_read_like_a_directory(
    kind: str, origin: Path, cache: Path, server: _Server
) -> None:
    uri = {"file": origin.as_uri(), "memory": "memory://some/where", "http": server.uri}[kind]
    if kind == "memory":
        upload(origin, uri, lambda what, done, end: None)
    local, remote = open_prepared(origin), open_prepared(uri)
    assert remote.location == uri
    assert remote.manifest == local.manifest
    assert remote.vocabulary == local.vocabulary
    np.testing.assert_array_equal(remote.vectors(), local.vectors())
    assert {"manifest.json", "vocabulary.json", "vectors.safetensors"} <= set(
        os.listdir(remote.folder)
    )
    split = remote.split("train")
    assert shards_in(cache) == []
    split.batch([0])
    assert shards_in(cache) == ["train-00000.arrow"]
    assert_equal(split, local.split("train"))
    assert len(shards_in(cache)) == len(split.shard_rows)
    again = pickle.loads(pickle.dumps(split))
    assert_equal(again, split)
    if kind == "memory":
        fsspec.filesystem("memory").rm("/some", recursive=True)


def test_what_was_fetched_is_not_fetched_again(origin: Path, server: _Server) -> None:
    open_prepared(server.uri).split("train").batch(range(ROWS))
    before = server.got.copy()
    again = open_prepared(server.uri)
    again.split("train").batch(range(ROWS))
    assert again.vectors().shape[1] == 2
    assert set(server.got - before) == {"manifest.json"}


def test_processes_fetch_a_shard_together_once(origin: Path, server: _Server) -> None:
    code = (
        "import sys; from rss_rl.data.store import open_prepared\n"
        "split = open_prepared(sys.argv[1]).split('train')\n"
        f"print(int(split.batch(range({ROWS})).tokens[0].sum()))\n"
    )
    command = [sys.executable, "-c", code, server.uri]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    results = {process.communicate(timeout=60)[0] for process in started}
    expected = open_prepared(origin).split("train").batch(range(ROWS)).tokens[0].sum()
    assert results == {f"{expected}\n"}
    # One download of these filesystems asks up to twice, for the size and for the content.
    assert max(n for name, n in server.got.items() if name.endswith(".arrow")) <= 2


def test_bad_bytes_are_an_error_and_are_not_met_again(
    origin: Path, cache: Path, server: _Server
) -> None:
    shard = origin / "train-00000.arrow"
    good = shard.read_bytes()
    shard.write_bytes(bytes(len(good)))
    split = open_prepared(server.uri).split("train")
    with pytest.raises(DataError, match=rf"{server.uri}/train-00000\.arrow: .*try once more"):
        split.batch([0])
    shard.write_bytes(good)
    split.batch([0])


@pytest.mark.parametrize("name", ["../../evil.arrow", "train-0.arrow"])
def test_a_manifest_names_no_file_elsewhere(name: str, origin: Path, server: _Server) -> None:
    path = origin / "manifest.json"
    path.write_text(path.read_text().replace("train-00000.arrow", name))
    for location in (origin, server.uri):
        with pytest.raises(DataError, match=r"manifest\.json: is damaged .*must be named"):
            open_prepared(location)


def run(*arguments: object) -> str:
    result = invoke(["data", *arguments])
    if isinstance(result.exception, RssError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_preparing_to_a_uri(tmp_path: Path, cache: Path) -> None:
    uri, folder = (tmp_path / "target").as_uri(), tmp_path / "target"
    options = (
        "--option",
        "train=120",
        "--option",
        "dev=20",
        "--option",
        "test=20",
        "--dim",
        3,
        "--json",
    )
    prepare_ = ("prepare", "planted", *options, "--out", uri)
    report = json.loads(run(*prepare_))
    assert report["directory"] == uri
    assert report["splits"]["train"]["rows"] == 120
    assert not list(cache.parent.glob("preparing-*"))
    with pytest.raises(DataError, match="exists already"):
        run(*prepare_)
    # A larger dataset that was there leaves nothing behind.
    local = tmp_path / "local"
    run(*prepare_[:-1], local)
    (folder / "train-00001.arrow").write_bytes(b"old")
    manifest = json.loads((folder / "manifest.json").read_text())
    shard = manifest["splits"]["train"]["shards"][0]
    second = {"name": "train-00001.arrow", "rows": 1, "bytes": 3, "sha256": "0" * 64}
    manifest["splits"]["train"] |= {"rows": shard["rows"] + 1, "shards": [shard, second]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    run(*prepare_, "--force")
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {
        p.name: p.read_bytes() for p in local.iterdir()
    }
    shown = json.loads(run("show", uri, "--json"))
    assert shown["splits"]["train"]["rows"] == 120
