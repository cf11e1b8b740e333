"""The folder that a user names for a source, and the files that it must contain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rss_rl.data.sources import SourceRequest
from rss_rl.errors import DataError


def source_folder(name: str, request: SourceRequest, example: str) -> Path:
    """The folder that a request names.

    Raises:
        DataError: it names none; `example` is a file that should be in it.
    """
    if request.path is None or not request.path.is_dir():
        raise DataError(
            f"{name} is read from a folder",
            where=str(request.path or ""),
            remedy=f"Give the folder with {example} as --from",
        )
    return request.path


def leave_out_folder(request: SourceRequest, why: str) -> None:
    """Check that no folder is given for a source that reads none.

    Raises:
        DataError: the request names one; `why` says that it is not needed.
    """
    if request.path is not None:
        raise DataError(why, where=str(request.path), remedy="Leave out --from")


def source_files(
    folder: Path,
    files: Mapping[str, str] | Mapping[str, tuple[str, ...]],
) -> dict[str, tuple[Path, ...]]:
    """The file or files of each split, which must be in `folder`.

    Raises:
        DataError: one is missing.
    """
    found = {
        split: tuple(folder / name for name in ((names,) if isinstance(names, str) else names))
        for split, names in files.items()
    }
    for path in (path for paths in found.values() for path in paths):
        if not path.is_file():
            raise DataError(
                f"there is no {path.name}",
                where=str(folder),
                remedy="Unpack the files there as their authors name them, or name another --from",
            )
    return found
