"""Encoding prepared data: the states that a contextual policy reads, computed once."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from rss_rl.api.options import Device, PythonOnly, Typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from rss_rl.data.sources import Progress
    from rss_rl.data.states import StatesInfo
    from rss_rl.data.store import Split
    from rss_rl.pretrained.context import ContextReader
    from rss_rl.types import Array

_BATCH_TOKENS = 1 << 13
_AHEAD = 256
"""Rows that are read together and batched by length."""


def encode(
    data: Annotated[str | Path, Typed(Path)],
    pretrained: Annotated[str, Parameter(name="--pretrained", metavar="FOLDER_OR_HUB_NAME")],
    *,
    layers: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    window: Literal["text", "sentence"] = "text",
    device: Device = "cpu",
    progress: PythonOnly[Progress] = lambda *_: None,
) -> StatesInfo:
    """Store a pretrained encoder's state of each word, in its context, with prepared data.

    A policy with policy.reads=contextual reads these states. If the call is stopped, repeat it to
    resume.

    Args:
        data: A prepared directory.
        pretrained: Folder of a transformer with its tokenizer, or its name on the hub.
        layers: Compute the first N layers alone: policy.layers=N.
        window: What it reads at once, a text up to its maximum length or a sentence: policy.window.
        progress: called with the current step, the number of rows done, and of how many.

    Returns:
        A description of the states.

    Raises:
        DataError: no prepared directory, it holds other states of it, or a write fails.
        ConfigError: the transformer or the device cannot be used.

    Examples:
        `rss-rl data encode prepared/reviews --pretrained MiniLM_FOLDER`

        `rss-rl train movies data=prepared/reviews policy.reads=contextual
        policy.pretrained=MiniLM_FOLDER`
    """
    import numpy as np

    from rss_rl.data.locations import open_files
    from rss_rl.data.states import (
        Encoding,
        StatesInfo,
        StatesWriter,
        intact_states,
        manifest_digest,
    )
    from rss_rl.data.store import Prepared
    from rss_rl.durable import disk_errors, file_lock, new_folder
    from rss_rl.errors import DataError
    from rss_rl.pretrained.context import ContextReader
    from rss_rl.reading.device import find_device
    from rss_rl.storage import is_uri

    if is_uri(str(data)):
        raise DataError(
            "states can be written only to a directory, not to a URI",
            where=str(data),
            remedy="Encode a copy in a directory",
        )
    files, on = open_files(data), find_device(device, "device")
    prepared = Prepared(files)
    splits = prepared.manifest.splits
    reader = ContextReader(pretrained, prepared.vocabulary.words, layers, window)
    encoding = Encoding(
        encoder=pretrained, digest=reader.pretrained.digest, layers=layers, window=window
    )
    info = StatesInfo(encoding=encoding, manifest=manifest_digest(files), size=reader.size)
    out = files.folder.absolute() / encoding.folder
    if intact := intact_states(out, info):
        return intact
    numbers = sum(sum(split.tokens) for split in splits.values()) * reader.size
    what = f"{2 * numbers / 1e9:,.2f} GB in all"
    unfinished = out.with_name(f".begun-{out.name}")
    busy = DataError("another process encodes them", where=str(out), remedy="Wait for it or end it")
    with ExitStack() as stack:
        stack.enter_context(
            disk_errors(out, "cannot be written", "Free space and run it again", DataError)
        )
        unfinished.parent.mkdir(exist_ok=True)
        stack.enter_context(file_lock(unfinished.with_name(f".lock-{out.name}"), busy))
        writer = StatesWriter(unfinished, info, prepared.sentences)

        def blocks(name: str, end: int) -> Iterator[list[tuple[Array, ...]]]:
            for start in range(writer.info.rows(name), end, _AHEAD):
                rows = np.arange(start, min(start + _AHEAD, end))
                yield _states(prepared.split(name), rows, reader, on)
                progress(f"encoding {name}, {what}", int(rows[-1]) + 1, end)

        for name, split in splits.items():
            writer.write(name, blocks(name, split.rows))
        with new_folder(out) as folder:
            for path in unfinished.iterdir():
                os.replace(path, folder / path.name)
        unfinished.rmdir()
        return writer.info


def _states(
    split: Split, rows: Array, reader: ContextReader, device: torch.device
) -> list[tuple[Array, ...]]:
    """The states of each row, S x [N_s, H]."""
    import torch

    from rss_rl.data.length_buckets import plain_batches

    lengths = split.lengths(rows)
    states: list[tuple[Array, ...]] = [()] * len(rows)
    for mine in plain_batches(lengths, len(rows), _BATCH_TOKENS):
        batch = split.batch(rows[mine])
        slots = [
            reader.states(*(torch.from_numpy(part).to(device) for part in pair)).cpu().numpy()
            for pair in zip(batch.tokens, batch.valid, strict=True)
        ]
        for position, row in enumerate(mine.tolist()):
            sizes = lengths[row]
            states[row] = tuple(slot[position, : sizes[s]] for s, slot in enumerate(slots))
    return states
