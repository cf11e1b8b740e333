"""Folders that a configuration names, such as those of pretrained transformers, on nodes without
them: sent through Ray's object store, and written once per node.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import ray

from rss_rl.cache import cache_root
from rss_rl.config import RunConfig, with_folders
from rss_rl.data.locations import cache_errors
from rss_rl.errors import ConfigError
from rss_rl.pretrained.folder import open_pretrained, plain_files


class Sent(NamedTuple):
    """A folder in the object store.

    digest    of its files
    contents  a reference to these: their names and bytes
    """

    digest: str
    contents: Any


class SharedFolders:
    """The folders of a run, by name; put into the object store when a process is first started."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    @cached_property
    def _put(self) -> dict[str, Sent]:
        names: list[str] = []

        def note(name: str) -> str:
            names.append(name)
            return name

        with_folders(self._config, note)
        found = ((name, _files(name)) for name in dict.fromkeys(names))
        return {
            name: Sent(_digest(files), ray.put(files)) for name, files in found if files is not None
        }

    def sent(self) -> dict[str, Sent]:
        """What a new process may need; nothing where all processes share this machine's disk.

        Asked for each process: nodes may join later.
        """
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        return self._put if sum(node["Alive"] for node in nodes) > 1 else {}


def with_folders_here(config: RunConfig, sent: dict[str, Sent]) -> RunConfig:
    """The configuration with the places of its folders on this node."""
    return with_folders(config, partial(_here, sent))


def _files(name: str) -> dict[str, bytes] | None:
    """The files of a folder, or of a name on the hub; None if it is neither."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        try:
            folder = open_pretrained(name).folder
        except ConfigError:
            return None
    return {path.name: path.read_bytes() for path in plain_files(folder)}


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def _here(sent: dict[str, Sent], name: str) -> str:
    if name not in sent or Path(name).expanduser().is_dir():
        return name
    place = cache_root() / "folders" / sent[name].digest
    if not place.is_dir():
        files = ray.get(sent[name].contents)
        with cache_errors(cache_root()):
            _write(files, place)
    return str(place)


def _write(files: dict[str, bytes], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    try:
        for name, content in files.items():
            (staging / name).write_bytes(content)
        os.replace(staging, place)
    except OSError:
        if not place.is_dir():  # else another process of this node was faster
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
