"""From a table to a trained model in one call."""

from __future__ import annotations

__all__ = ["fit"]

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rss_rl.api.preparing import Rows, prepare
from rss_rl.api.terminal import SafeConsole, busy, say
from rss_rl.api.training import settings, train
from rss_rl.data.static_vectors import PACKAGES, find_static
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError, DataError
from rss_rl.runs.run_directory import CONFIG_FILE

if TYPE_CHECKING:
    from rss_rl.api.run import Run
    from rss_rl.training.run import RunEvent

_LONG_TEXT = 100
"""Words of a text, on average, from which on no attention between all pairs of words is used."""


def fit(
    data: Rows,
    *,
    text: str,
    label: str,
    text_b: str | None = None,
    keep: float | None = None,
    time: str | float | None = None,
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    prepared: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callable[[RunEvent], None]] = (),
    console: Console | None = None,
) -> Run:
    """Prepare a table and train on it: `configs/own.yaml`, for long texts `own_long.yaml`, with
    what follows from the data.

    Args:
        data, text, label, text_b: see `rss_rl.prepare`.
        keep: share of the words that the policy shall keep, as `reward.target_share`; None leaves
            it to `reward.sparsity_cost`.
        time: bound of the training, see `rss_rl.train`.
        out: directory of the run; default `runs/NAME` after the file. The prepared data lie in
            `data` beside its files, so that one directory holds all.
        overrides: settings that differ from those chosen here; they come last.
        prepared: further arguments of `rss_rl.prepare`, such as `{"task": "score"}`.
        overwrite: replace a run, and its data, that are there.
        callbacks, console: see `rss_rl.train`.

    Raises:
        RssError: any expected failure.
    """
    shown = console or SafeConsole(highlight=False)
    path = Path(out) if out is not None else Path("runs") / _name(data)
    folder = path.with_name(f"{path.name}-data")
    if (path / CONFIG_FILE).is_file() and not overwrite:
        raise ConfigError(
            "there is a run already",
            where=str(path),
            remedy=f"Resume it (rss-rl train --resume {path}), give another directory, or"
            " overwrite=True (--overwrite)",
        )
    given = {"force": True} | dict(prepared or {})
    vectors, said = _vectors(given.get("vectors"), given.get("dim"))
    given["vectors"] = vectors
    with busy(shown, "preparing the data"):
        found = prepare(data, text=text, label=label, text_b=text_b, out=folder, **given)
    base = _base(found)
    chosen = {} if keep is None else {"reward.target_share": keep}
    lines = [f"Data: {folder}", f"  vectors: {said}", f"  configuration: {base}"]
    for line in (*lines, *(f"  {key}={value}" for key, value in chosen.items())):
        say(shown, line)
    return train(
        base,
        [*settings({"data": str(folder)} | chosen), *settings(overrides)],
        out=path,
        time=time,
        overwrite=overwrite,
        callbacks=callbacks,
        console=shown,
    )


def _base(data: Prepared) -> str:
    """The configuration that fits the length of the texts."""
    train = data.manifest.splits["train"]
    words = max(tokens / train.rows for tokens in train.tokens)
    return "own_long" if words >= _LONG_TEXT else "own"


def _vectors(
    given: str | Path | Sequence[str | Path] | None, dim: int | None
) -> tuple[Sequence[str | Path], str]:
    """Those given, else those that an installed package carries, else none; what to say of it."""
    if given is not None or dim is not None:
        given = [given] if isinstance(given, str | Path) else given or ()
        return given, ", ".join(map(str, given)) or "learnt from these texts alone, as asked"
    for package in PACKAGES:
        if find_spec(package) is None:
            continue
        with suppress(DataError):  # a version that carries none, or without what reads them
            find_static(Path(f"static:{package}"))
            return [f"static:{package}"], f"static:{package}, subword vectors that are installed"
    return (), (
        "learnt from these texts alone; --vectors FILE (vectors=[FILE]) gives others, as does"
        f" `pip install {PACKAGES[0]}`"
    )


def _name(data: Rows) -> str:
    """Of the run: that of the file, where there is one."""
    first = data[0] if isinstance(data, list | tuple) and data else data
    return Path(first).stem if isinstance(first, str | Path) else "own"
