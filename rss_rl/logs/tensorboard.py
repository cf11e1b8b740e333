"""TensorBoard's event files of a run: RUN/tensorboard/NAME/events...

When a run is resumed, TensorBoard drops what was written after its checkpoint.
"""

from __future__ import annotations

import html
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rss_rl.components import Component, NoOptions
from rss_rl.logs.logger import LoggedRun, RunLogger
from rss_rl.metrics.measures import leading_measures
from rss_rl.types import Array

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_FLUSH_SECONDS = 10
Hparams = Mapping[str, str | float]
_MAIN = "0_main"
"""The group that TensorBoard shows first: whether it learns, how much it keeps, and what."""
_REWARD, _COST, _PRICE = "reward/total", "reward/sparsity_cost", "reward/lambda"
_WIDE, _LINE, _SIZE, _EDGE = 560, 26, 18, 12
"""Of a picture of marked sentences, in pixels."""
_MOST_LINES = 60
"""Of such a picture; what is below is cut."""


class TensorBoardLogger(RunLogger):
    """Writes event files; a run that has some keeps their folder."""

    def __init__(self, run: LoggedRun, options: NoOptions) -> None:
        folder = _events_folder(run.folder / "tensorboard", run.name)
        self._events = _open_event_files(folder, purge_step=0 if run.step is None else run.step + 1)
        self._main = {
            "selection/kept": f"{_MAIN}/kept_as_drawn_in_training",
            "dev/thresholded/kept": f"{_MAIN}/kept_in_use",
            _PRICE: f"{_MAIN}/price",
        }
        for name in leading_measures():
            self._main[f"dev/thresholded/{name}"] = f"{_MAIN}/{name}_kept_words"
            self._main[f"dev/all/{name}"] = f"{_MAIN}/{name}_all_words"

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """See `RunLogger`."""
        now = time.time()
        shown = {self._main[tag]: value for tag, value in values.items() if tag in self._main}
        if _REWARD in values:
            # A price that moves would hide whether the rest grows.
            cost = values.get(_COST, 0.0) if _PRICE in values else 0.0
            shown[f"{_MAIN}/reward_without_price"] = values[_REWARD] + cost
        for tag, value in {**values, **shown}.items():
            self._events.add_scalar(tag, value, step, walltime=now)

    def text(self, step: int, tag: str, markdown: str) -> None:
        """See `RunLogger`; beside the scalars the text stands as a picture."""
        self._events.add_text(tag, markdown, step)
        self._events.add_image(f"{_MAIN}/kept_words", picture(markdown), step, dataformats="HWC")

    def flush(self) -> None:
        """See `RunLogger`."""
        self._events.flush()

    def close(self, failed: bool) -> None:
        """See `RunLogger`."""
        self._events.close()


TENSORBOARD = Component(
    kind="logger",
    name="tensorboard",
    help="Writes TensorBoard's event files into the run directory.",
    build=TensorBoardLogger,
)


def picture(markdown: str) -> Array:
    """Text in which some is **bold**, as a picture: the rest is grey; uint8 [H, W, 3]."""
    from matplotlib.font_manager import findfont  # pillow draws, in a font of matplotlib
    from PIL import Image, ImageDraw, ImageFont

    fonts = [ImageFont.truetype(findfont(f"DejaVu Sans:{w}"), _SIZE) for w in ("regular", "bold")]
    placed: list[tuple[int, int, str, bool]] = []
    left, line = _EDGE, 0
    for part in markdown.split("\n"):
        for word in part.split(" "):
            bold = word.startswith("**")
            text = html.unescape(word.replace("*", ""))
            width = int(fonts[bold].getlength(f"{text} "))
            if left > _EDGE and left + width > _WIDE - _EDGE:
                left, line = _EDGE, line + 1
            placed.append((left, line, text, bold))
            left += width
        left, line = _EDGE, line + 1
    height = 2 * _EDGE + _LINE * min(line, _MOST_LINES)
    image = Image.new("RGB", (_WIDE, height), "white")
    canvas = ImageDraw.Draw(image)
    for x, number, text, bold in placed:
        colour = "black" if bold else "#9a9a9a"
        canvas.text((x, _EDGE + _LINE * number), text, fill=colour, font=fonts[bold])
    return np.asarray(image)


def write_hparams(folder: Path, runs: Mapping[str, tuple[Hparams, Mapping[str, float]]]) -> None:
    """What TensorBoard's tab HPARAMS shows of runs: by name their settings and scores."""
    from torch.utils.tensorboard.summary import hparams

    for name, (settings, scores) in runs.items():
        with _open_event_files(folder / name, purge_step=0) as events:
            for summary in hparams(dict(settings), dict(scores)):  # type: ignore[no-untyped-call]
                events.file_writer.add_summary(summary)
            for tag, value in scores.items():
                events.add_scalar(tag, value, 0)


def _events_folder(directory: Path, name: str) -> Path:
    """The folder of a run's event files; TensorBoard purges steps only within one folder."""
    older = sorted(directory.rglob("events.out.tfevents.*"))
    return older[-1].parent if older else directory / name


def _open_event_files(directory: Path, purge_step: int) -> SummaryWriter:
    """A writer of a new TensorBoard file, which purges steps from `purge_step` on in older ones."""
    from torch.utils.tensorboard import SummaryWriter  # slow to import, and few processes write

    _wait_for_new_name(directory)
    return SummaryWriter(str(directory), purge_step=purge_step, flush_secs=_FLUSH_SECONDS)


def _wait_for_new_name(directory: Path) -> None:
    """Wait until the second of the newest event file has passed.

    TensorBoard reads event files in the order of their names, which have the second of creation and
    then the process id: of two in one second, the later may be read first, and would purge nothing.
    """
    newest = max((_made_in(path) for path in directory.glob("events.out.tfevents.*")), default=0)
    if newest == int(time.time()):
        time.sleep(max(0.0, newest + 1 - time.time()))


def _made_in(events: Path) -> int:
    second = events.name.split(".")[3]
    return int(second) if second.isdigit() else 0
