"""A run as an object: its configuration, report, metrics, scores and trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rss_rl
from rss_rl.components import EVERYTHING, NOTHING, Trust
from rss_rl.config import RunConfig, plugins_named, setting
from rss_rl.errors import ConfigError
from rss_rl.runs.run_directory import ALL_TOKENS, REPORT_FILE, RunDirectory

if TYPE_CHECKING:
    import pandas as pd

    from rss_rl.inference.model import Model
    from rss_rl.training.evaluation import Mode
    from rss_rl.training.run import RunEvent


class Run:
    """A training run on disk, finished or not.

    Args:
        path: its directory.
        trust_plugins: import components that its files name as package.module:OBJECT, which can
            then run any code; or only those of a `Trust`.

    Attributes:
        path: the directory, absolute.
        config: the resolved configuration.
        trust: which code its files may import.
        paths: directories of the runs of one `fit` that differ in the seed, this one's last.
        stopped_by: the signal that stopped the training which returned this run, or None.

    Raises:
        RssError: there is no run, or its configuration is damaged.
    """

    def __init__(self, path: Path | str, *, trust_plugins: bool | Trust = False) -> None:
        if not isinstance(trust_plugins, Trust):
            trust_plugins = EVERYTHING if trust_plugins else NOTHING
        self.trust = trust_plugins
        directory = RunDirectory.open(Path(path))
        self.path = directory.path
        self.config: RunConfig = directory.parsed_config(trust_plugins)
        self.paths = [self.path]
        self.stopped_by: int | None = None

    @property
    def finished(self) -> bool:
        """Whether there is a final report."""
        return (self.path / REPORT_FILE).is_file()

    @property
    def report(self) -> dict[str, Any]:
        """The final report: scores by split, selection and metric, and the training cost.

        Raises:
            CheckpointError: the run is not finished, or the report is damaged.
        """
        return RunDirectory.open(self.path).read_report()

    @cached_property
    def model(self) -> Model:
        """The model of the best checkpoint; see `rss_rl.load`."""
        from rss_rl.inference.model import load_model

        return load_model(self.path, trust=self.trust)

    def curves(self) -> pd.DataFrame:
        """All logged scalars: a row per update, a column per tag, those of dev first.

        NaN where nothing was logged. Tags and units: docs/metrics.md.

        Raises:
            CheckpointError: the metrics are damaged.
        """
        from rss_rl.logs.metrics import read_curves

        return read_curves(self.path)

    def evaluate(
        self,
        split: str = "test",
        modes: Sequence[Mode] | None = None,
        *,
        which: str | int = "best",
        device: str | None = None,
        input: Path | str | None = None,
        columns: Sequence[str] = (),
    ) -> dict[str, dict[str, float]]:
        """Metrics of a split, or of a labelled file, by selection mode; default all of the run's.

        Args:
            input: the file, in place of a split. Its scores are also written to `evaluated.json`.
            columns: there, of the texts, then of the label. Default: those of the training table.

        `all` is the comparison trained with every token selected: weights trained on selections
        are never scored with all tokens.

        Raises:
            RssError: no such split, checkpoint or mode, or the data differ from the training data.
        """
        from rss_rl.results.labelled import keep_scores, score_labelled
        from rss_rl.results.scores import score_run

        asked = list(modes or self._modes())
        found: dict[str, dict[str, float]] = {}
        for path in dict.fromkeys(map(self._weights_path, asked)):
            here = [mode for mode in asked if self._weights_path(mode) == path]
            if input is None:
                found |= score_run(path, split, here, which=which, device=device, trust=self.trust)
                continue
            found |= score_labelled(
                path, Path(input), columns, here, which=which,
                device=device or self.config.learner.device, trust=self.trust,
            )  # fmt: skip
        scores: dict[str, dict[str, float]] = {mode: found[mode] for mode in asked}
        if input is not None:
            keep_scores(self.path, Path(input), which, scores)
        return scores

    def _modes(self) -> list[Mode]:
        if not self.config.selects:
            return ["all"]
        compared: list[Mode] = ["all"] if (self.path / ALL_TOKENS).is_dir() else []
        return [*compared, "thresholded", "sampled", "random"]

    def _weights_path(self, mode: Mode) -> Path:
        """The run whose weights a mode uses."""
        if mode not in self._modes():
            raise ConfigError(
                f"the run has no selection '{mode}'",
                where=str(self.path),
                remedy=f"Give one that it has: {', '.join(self._modes())}",
            )
        return self.path / ALL_TOKENS if self.config.selects and mode == "all" else self.path

    def resume(self, *, callbacks: Sequence[Callable[[RunEvent], None]] = ()) -> Run:
        """Train from the last checkpoint to the end; see `rss_rl.train`."""
        names = [setting(key, value) for key, value in plugins_named(self.config)]
        if self.trust.admits(self.config.data):
            names.append(setting("data", self.config.data))
        return rss_rl.train(self.path, names, resume=True, callbacks=callbacks)

    def __repr__(self) -> str:
        return f"rss_rl.Run({str(self.path)!r})"
