"""Which files of a run a storage path holds, and the order in which they are written and deleted.

Data are written before the checkpoints that depend on them, a checkpoint before its pointers,
LATEST after all other pointers; deletions come last. So whenever the writer dies, the checkpoint
that LATEST names is complete. On the storage, the name of a tensors file has its digest, so that a
step that is saved again never overwrites the one that LATEST names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rss_rl.json_files import canonical_json, read_json
from rss_rl.logs.events import EVENTS_FILE
from rss_rl.runs.checkpoint import LATEST, STATE_FILE, parse_step, read_pointer, tensors_path
from rss_rl.runs.run_directory import ALL_TOKENS, CONFIG_FILE, STATUS_FILE

Signature = tuple[object, ...]
_STEP = r"checkpoints/step-\d{6,18}/"
_ORDER = (
    r"config\.(json|yaml)|inputs/[\w.-]+|metrics/part-\d+\.parquet",
    _STEP + r"tensors(-[0-9a-f]{16})?\.safetensors",
    _STEP + re.escape(STATE_FILE),
    r"checkpoints/(?!LATEST$)[A-Z][A-Z0-9_]*",
    r"checkpoints/LATEST",
    rf"tensorboard/(\w[\w.-]*/)?[\w.~-]+|{re.escape(EVENTS_FILE)}(\.1)?|{re.escape(STATUS_FILE)}",
    r"report\.json",
)
_PATTERNS = tuple(re.compile(pattern) for pattern in _ORDER)
_TENSORS, _POINTERS = 1, (3, 4)  # indices of _ORDER


@dataclass(frozen=True)
class Item:
    """A file to upload.

    name       on the storage
    signature  equal for equal content
    source     its bytes; or the open file, if it may be deleted meanwhile; or its path
    """

    name: str
    signature: Signature
    source: bytes | BinaryIO | Path


@dataclass
class Snapshot:
    """The state of a run directory at one moment.

    step   of the checkpoint that LATEST names; None if there is none yet
    names  all files that belong on the storage
    items  those to upload, in order
    """

    step: int | None = None
    names: set[str] = field(default_factory=set)
    items: list[Item] = field(default_factory=list)
    _open: ExitStack = field(default_factory=ExitStack)

    def hold(self, path: Path) -> BinaryIO:
        """Open a file, which stays open until `close`."""
        return self._open.enter_context(path.open("rb"))

    def close(self) -> None:
        """Close the files."""
        self._open.close()


def is_of_run(name: str) -> bool:
    """Whether a file on a storage has a name that a run's files have; others are never touched."""
    return _rank(name) is not None


def _rank(name: str) -> tuple[int, bool] | None:
    """Position in the order of upload; the comparison's report comes before the run's."""
    inner = name.removeprefix(f"{ALL_TOKENS}/")
    for position, pattern in enumerate(_PATTERNS):
        if pattern.fullmatch(inner):
            return position, inner == name
    return None


def removal_order(names: set[str]) -> list[str]:
    """The names in order of deletion: pointers before what they point to."""
    return sorted((name for name in names if is_of_run(name)), key=_rank_of, reverse=True)


def _rank_of(name: str) -> tuple[int, bool, str]:
    # The configuration, which makes a path a run, is written first and deleted last.
    first = (-1, False) if name == CONFIG_FILE else None
    return *(first or _rank(name) or (len(_ORDER), False)), name


def take_snapshot(run_dir: Path, known: Mapping[str, Signature]) -> Snapshot:
    """The current state of the run; must be called by the thread that writes it.

    Args:
        known: signatures of the files on the storage, which are not opened.

    Raises:
        OSError, CheckpointError: a file cannot be read.
    """
    snapshot = Snapshot()
    try:
        for name, signature, source in _found(run_dir):
            snapshot.names.add(name)
            if known.get(name) == signature:
                continue
            held: bytes | BinaryIO | Path = source
            if isinstance(source, Path) and "/tensors-" in name:  # may be pruned before the upload
                held = snapshot.hold(source)
            snapshot.items.append(Item(name, signature, held))
    except BaseException:
        snapshot.close()
        raise
    snapshot.items.sort(key=lambda item: _rank_of(item.name))
    if f"checkpoints/{LATEST.upper()}" in snapshot.names:
        snapshot.step = parse_step(read_pointer(run_dir, LATEST))
    return snapshot


def _found(run_dir: Path) -> Iterator[tuple[str, Signature, Path | bytes]]:
    """Name, signature and path or content of each file of the run."""
    for folder, folders, files in os.walk(run_dir):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in files:
            path = Path(folder, file)
            name = path.relative_to(run_dir).as_posix()
            rank = _rank(name)
            if rank is None or rank[0] == _TENSORS:
                continue  # tensors are found through the state that names them
            if file == STATE_FILE:
                yield from _checkpoint(name, path)
            elif rank[0] in _POINTERS:
                content = path.read_bytes()
                yield name, (content,), content
            else:
                status = path.stat()
                signature = (status.st_ino, status.st_size, status.st_mtime_ns)
                yield name, signature, path


def _checkpoint(name: str, state: Path) -> Iterator[tuple[str, Signature, Path | bytes]]:
    """The two files of a checkpoint, in their form on the storage."""
    record = read_json(state, remedy="Resume the run, which skips a damaged checkpoint")
    digest = record.get("tensors_sha256")
    tensors = tensors_path(state.parent, record.get("tensors_file"))
    if not isinstance(digest, str) or tensors is None:
        return  # not written by rss-rl: not copied
    content_name = f"tensors-{digest[:16]}.safetensors"
    yield name.removesuffix(STATE_FILE) + content_name, content_signature(tensors), tensors
    text = canonical_json({**record, "tensors_file": content_name}, where=str(state))
    yield name, (text,), text.encode()


def content_signature(tensors: Path | int) -> Signature:
    """The signature of a file named by its digest: its size, which a storage reports, too."""
    return ("size", tensors if isinstance(tensors, int) else tensors.stat().st_size)


def present_signatures(files: Mapping[str, int]) -> dict[str, Signature]:
    """Signatures of the files that a storage has at the start, given their names and sizes.

    Most files get a signature that matches no other, so that they are uploaded again or deleted.
    """
    return {
        name: content_signature(size) if "/tensors-" in name else ()
        for name, size in files.items()
        if is_of_run(name)
    }
