"""Fetching an entry of the catalogue: download, check and unpack what `prepare` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from rss_rl.data.fetching.download import Download, Retries, download
from rss_rl.data.fetching.entries import Entry, RemoteFile
from rss_rl.data.fetching.part import Part, disk_refuses
from rss_rl.data.fetching.record import BY_HAND, Fetched, Record, folder_lock
from rss_rl.data.fetching.redirect import check_address
from rss_rl.data.fetching.unpack import unpack
from rss_rl.data.staging import Progress
from rss_rl.durable import file_sha256
from rss_rl.errors import DataError


def fetch(
    entry: Entry,
    folder: Path,
    *,
    mirror: str | None = None,
    force: bool = False,
    retries: Retries | None = None,
    progress: Progress = lambda what, done, end: None,
) -> list[Fetched]:
    """Fetch the files of `entry` into `folder`, and unpack them there.

    Files in the folder, such as those downloaded by hand, are checked and used. A partial download
    is resumed.

    Args:
        mirror: address of a copy: files are taken from `mirror`/NAME. http is allowed.
        force: download and unpack existing files again.

    Raises:
        DataError: the entry cannot be fetched, an address does not answer, a file is not the
            published one, another process is fetching into the folder, or the disk refuses.
    """
    by_hand = f"By hand ({entry.home}): {entry.by_hand}"
    if mirror is not None:
        check_address(mirror, plain=True)
    retries = replace(retries or Retries(), plain=mirror is not None)
    if not entry.files:
        raise DataError(f"{entry.name} has no address to fetch it from", remedy=by_hand)
    names = ", ".join(file.name for file in entry.files)
    by_hand += f"; put {names} into {folder} and run this command again. "
    by_hand += "Or name a copy with --mirror"
    done = []
    with folder_lock(folder):
        record = Record(folder)
        for file, url in zip(entry.files, sources_of(entry, mirror), strict=True):
            found = None if force else record.intact(file.name, file.sha256)
            if found is None:
                wanted = Download(url or "", folder / file.name, file.size, file.sha256, by_hand)
                found = _get(file, wanted, entry, force, retries, progress)
                record.add(found)
                # Files that the user put there are kept.
                Part(wanted.target).settle(keep=file.unpack is None or found.source == BY_HAND)
            done.append(found)
    _check_complete(entry, folder)
    return done


def sources_of(entry: Entry, mirror: str | None = None) -> Sequence[str | None]:
    """The address of each file of `entry`; None if it must be downloaded by hand."""
    if mirror is None:
        return [file.url for file in entry.files]
    return [f"{mirror.rstrip('/')}/{quote(file.name)}" for file in entry.files]


def _get(
    file: RemoteFile,
    wanted: Download,
    entry: Entry,
    force: bool,
    retries: Retries,
    progress: Progress,
) -> Fetched:
    """Download one file, unless it was put into the folder by hand, and unpack it."""
    target, folder = wanted.target, wanted.target.parent
    given = target.is_file() and not Part(target).unsettled() and not force
    if given:
        digest = _check_given(file, target)
    elif wanted.url:
        check_address(wanted.url, retries.plain)
        digest = "" if force else _left_over(file, target)
        digest = digest or download(wanted, retries, progress)
    else:
        what = f"{file.name} of {entry.name} has no address for a direct download"
        raise DataError(what, where=entry.home, remedy=wanted.by_hand)
    with disk_refuses(target):
        size = target.stat().st_size
        names = [file.name]
        if file.unpack is not None:
            progress(f"unpacking {file.name}", 0, None)
            names = unpack(target, file.unpack, folder)
        files = {name: (folder / name).stat().st_size for name in names}
    source = BY_HAND if given else wanted.url
    return Fetched(file.name, source, size, digest, file.sha256 is not None, files)


def _left_over(file: RemoteFile, target: Path) -> str:
    """SHA-256 of an archive left by a command that was killed before unpacking; "" for none."""
    if file.sha256 is None or not target.is_file() or file_sha256(target) != file.sha256:
        return ""
    return file.sha256


def _check_given(file: RemoteFile, path: Path) -> str:
    with disk_refuses(path):
        size, digest = path.stat().st_size, file_sha256(path)
    if file.size in (None, size) and file.sha256 in (None, digest):
        return digest
    raise DataError(
        f"is not the published file: it has {size:,} bytes and the SHA-256 {digest}",
        where=str(path),
        remedy="Remove it, or replace it by a download with --force",
    )


def _check_complete(entry: Entry, folder: Path) -> None:
    missing = [name for name in entry.needs if not (folder / name).exists()]
    if missing:
        raise DataError(
            f"there is no {', '.join(missing)}", where=str(folder), remedy="Fetch it with --force"
        )
