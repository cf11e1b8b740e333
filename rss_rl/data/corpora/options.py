"""What a user asked of a named source, checked: its options, its folder and the files there."""

from __future__ import annotations

__all__ = ["choice_option", "number_option", "refuse_options", "source_files", "source_folder"]

from collections.abc import Mapping, Sequence
from pathlib import Path

from rss_rl.data.sources import SourceRequest
from rss_rl.errors import DataError, nearest


def refuse_options(name: str, request: SourceRequest, known: Sequence[str] = ()) -> None:
    """Check that a request has only the options a source knows.

    Raises:
        DataError: naming the unknown option.
    """
    for option in request.options:
        if option not in known:
            raise DataError(
                f"{name} has no option '{option}'{nearest(option, list(known))}",
                remedy=f"Its options are: {', '.join(known) or 'none'}",
            )


def choice_option(options: Mapping[str, str], option: str, usual: str, other: str) -> str:
    """Which of two values an option has, `usual` where it is not given.

    Raises:
        DataError: it has neither.
    """
    value = options.get(option, usual)
    if value not in (usual, other):
        raise DataError(
            f"{option}={value} is neither {usual} nor {other}", remedy=f"Write {option}={other}"
        )
    return value


def number_option(options: Mapping[str, str], option: str, default: int) -> int:
    """The whole number that an option has, at least 0, `default` where it is not given.

    Raises:
        DataError: it is no such number.
    """
    text = options.get(option, str(default))
    if not text.isdecimal():
        raise DataError(f"{option}={text} is no number", remedy=f"Write {option}={default}")
    return int(text)


def source_folder(name: str, request: SourceRequest, example: str) -> Path:
    """The folder that a request names.

    Raises:
        DataError: it names none; `example` is a file that should lie there.
    """
    if request.path is None or not request.path.is_dir():
        raise DataError(
            f"{name} is read from a folder",
            where=str(request.path or ""),
            remedy=f"Give the folder with {example} as --from",
        )
    return request.path


def source_files(folder: Path, files: Mapping[str, str]) -> Mapping[str, Path]:
    """Paths of the files, by split, that must lie in `folder`.

    Raises:
        DataError: one is not there.
    """
    missing = [name for name in files.values() if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"there is no {missing[0]}",
            where=str(folder),
            remedy="Unpack the files as their authors name them, or name another --from",
        )
    return {split: folder / name for split, name in files.items()}
