"""Which files of a run a storage path holds, and the order in which they are written and deleted.

Data are written before the checkpoints that depend on them, a checkpoint before its pointers,
LATEST after all other pointers; deletions come last. So whenever the writer dies, the checkpoint
that LATEST names is complete. The name of a tensors file has its digest, so that a step that is
saved again never overwrites the one that LATEST names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rss_rl.json_files import json_object
from rss_rl.runs.checkpoint import STATE_FILE, tensors_path
from rss_rl.runs.run_directory import (
    ALL_TOKENS,
    CONFIG_FILE,
    EVALUATED_FILE,
    EVENTS_FILE,
    PAGE_FILE,
    PROVENANCE_FILE,
    REPORT_FILE,
    STATUS_FILE,
)
from rss_rl.storage import final_name

_STEP = r"checkpoints/step-\d{6,18}/"
_ORDER = (
    r"config\.(json|yaml)|inputs/[\w.-]+|metrics/part-\d+\.parquet",
    _STEP + r"tensors-[0-9a-f]{16}\.safetensors",
    _STEP + re.escape(STATE_FILE),
    r"checkpoints/(?!LATEST$)[A-Z][A-Z0-9_]*",
    r"checkpoints/LATEST",
    r"tensorboard/(\w[\w.-]*/)?[\w.~-]+|"
    + "|".join(
        map(re.escape, (EVENTS_FILE, STATUS_FILE, PROVENANCE_FILE, PAGE_FILE, EVALUATED_FILE))
    ),
    re.escape(REPORT_FILE),
)
_PATTERNS = tuple(re.compile(pattern) for pattern in _ORDER)
_TENSORS, _POINTERS = 1, (3, 4)  # indices of _ORDER
_TRIES = 5

Signature = tuple[object, ...]


@dataclass(frozen=True)
class Item:
    """A file of the run.

    name       on the storage
    signature  equal for equal content
    source     its bytes; or the open file, if it may be deleted meanwhile; or its path; None if
               the storage has it already
    """

    name: str
    signature: Signature
    source: bytes | BinaryIO | Path | None


def is_of_run(name: str) -> bool:
    """Whether a file on a storage has a name that a run's files have; others are never touched."""
    return _rank(name) is not None


def present(files: Mapping[str, int]) -> dict[str, Signature]:
    """Signatures of the files that a storage has at the start, given their names and sizes.

    Most files get a signature that matches no other, so that they are uploaded again or deleted;
    so do temporary files that killed writers left.
    """
    signatures: dict[str, Signature] = {}
    for name, size in files.items():
        if (rank := _rank(final_name(name))) is not None:
            whole_tensors = rank[0] == _TENSORS and final_name(name) == name
            signatures[name] = (size,) if whole_tensors else ()
    return signatures


def _rank(name: str) -> tuple[int, bool] | None:
    """Position in the order of upload; the comparison's report comes before the run's."""
    inner = name.removeprefix(f"{ALL_TOKENS}/")
    for position, pattern in enumerate(_PATTERNS):
        if pattern.fullmatch(inner):
            return position, inner == name
    return None


def in_order(names: Collection[str]) -> list[str]:
    """The names of a run's files in order of upload; deletion is in reverse order."""

    def key(name: str) -> tuple[int, bool, str]:
        # The configuration, which makes a path a run, is written first and deleted last.
        first = (-1, False) if name == CONFIG_FILE else None
        return *(first or _rank(name) or (len(_ORDER), False)), name

    return sorted(names, key=key)


@contextmanager
def current_state(run_dir: Path, known: Mapping[str, Signature]) -> Iterator[list[Item]]:
    """The files of a run that another thread trains, in order of upload; those that may be deleted
    stay open.

    Args:
        known: signatures of files that the storage has; such tensors are not opened.

    Raises:
        OSError: a file cannot be read, or checkpoints are deleted as fast as they are found.
    """
    for tries_left in reversed(range(_TRIES)):
        with ExitStack() as stack:
            try:
                items = _read(run_dir, known, stack)
            except FileNotFoundError:  # a checkpoint was deleted after its pointer was read
                if not tries_left:
                    raise
                continue
            yield items
            return


def _read(run_dir: Path, known: Mapping[str, Signature], stack: ExitStack) -> list[Item]:
    # Pointers first: what they name is then found, or was deleted for something newer.
    pointers = {
        path.relative_to(run_dir).as_posix(): path.read_bytes()
        for part in (run_dir, run_dir / ALL_TOKENS)
        for path in (part / "checkpoints").glob("[A-Z]*")
    }
    items = (Item(name, (text,), text) for name, text in pointers.items() if is_of_run(name))
    by_name = {item.name: item for item in items}
    for folder, folders, files in os.walk(run_dir):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in files:
            path = Path(folder, file)
            name = path.relative_to(run_dir).as_posix()
            rank = _rank(name)
            if rank is None or rank[0] in (_TENSORS, *_POINTERS):
                continue  # tensors are found through the state that names them
            with suppress(FileNotFoundError):  # deleted or renamed meanwhile
                is_state = file == STATE_FILE
                both = _checkpoint(name, path, known, stack) if is_state else [_file(name, path)]
                by_name |= {item.name: item for item in both}
    named = {name: text.decode(errors="replace").strip() for name, text in pointers.items()}
    for name, target in named.items():
        if name in by_name and f"{name.rpartition('/')[0]}/{target}/{STATE_FILE}" not in by_name:
            raise FileNotFoundError(f"{name} names {target!r}, which is not there")
    return [by_name[name] for name in in_order(by_name)]


def _file(name: str, path: Path) -> Item:
    status = path.stat()
    return Item(name, (status.st_ino, status.st_size, status.st_mtime_ns), path)


def _checkpoint(
    name: str, state: Path, known: Mapping[str, Signature], stack: ExitStack
) -> list[Item]:
    """The two files of a checkpoint; none if it was not written by rss-rl."""
    text = state.read_bytes()
    tensors = tensors_path(state.parent, json_object(text).get("tensors_file"))
    if tensors is None:
        return []
    tensors_name = name.removesuffix(STATE_FILE) + tensors.name
    signature = (tensors.stat().st_size,)  # a size is what a storage tells, too
    same = known.get(tensors_name) == signature
    held = None if same else stack.enter_context(tensors.open("rb"))
    return [Item(tensors_name, signature, held), Item(name, (text,), text)]
