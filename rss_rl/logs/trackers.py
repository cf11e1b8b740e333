"""Loggers of experiment trackers, each a package of its own: Weights & Biases, MLflow, Trackio.

Where they log to, and as whom, is told to them as always, by `wandb login`, `WANDB_MODE`,
`MLFLOW_TRACKING_URI` and the like.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rss_rl.components import Component, Options
from rss_rl.logs.logger import LoggedRun, RunLogger

_MOST_PARAMS = 100
"""MLflow takes as many at once."""
_FOLDER_TAG = "rss_rl.folder"
_STEP = "update"


class TrackerOptions(Options):
    """Options of a tracker."""

    project: str = "rss-rl"
    """Project (in MLflow: experiment) that the run is filed under."""


class WandbLogger(RunLogger):
    """Logs to Weights & Biases; the id of the run there is kept in RUN/wandb-id."""

    def __init__(self, run: LoggedRun, options: TrackerOptions) -> None:
        import wandb

        self._wandb = wandb
        run.folder.mkdir(parents=True, exist_ok=True)
        kept = run.folder / "wandb-id"
        if run.step is None or not kept.is_file():
            kept.write_text(secrets.token_hex(8))
        self._run = wandb.init(
            project=options.project,
            name=run.name,
            id=kept.read_text(),
            resume="allow",
            config=dict(run.settings),
            dir=run.folder,
        )
        # Not W&B's own steps, which cannot go back to a checkpoint.
        self._run.define_metric("*", step_metric=_STEP)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """See `RunLogger`."""
        self._run.log({_STEP: step, **values})

    def text(self, step: int, tag: str, markdown: str) -> None:
        """See `RunLogger`."""
        table = self._wandb.Table(columns=["text"], data=[[markdown]])
        self._run.log({_STEP: step, tag: table})

    def close(self, failed: bool) -> None:
        """See `RunLogger`."""
        self._run.finish(exit_code=int(failed))


class MLflowLogger(RunLogger):
    """Logs to MLflow; a run that resumes goes on with the newest run there of its folder."""

    def __init__(self, run: LoggedRun, options: TrackerOptions) -> None:
        from mlflow import MlflowClient, entities

        self._client, self._entities = MlflowClient(), entities
        known = self._client.get_experiment_by_name(options.project)
        if known is None:
            experiment = self._client.create_experiment(options.project)
        else:
            experiment = known.experiment_id
        folder = str(run.folder.absolute())
        self._run = None if run.step is None else self._earlier(experiment, folder)
        if self._run is None:
            tags = {_FOLDER_TAG: folder}
            created = self._client.create_run(experiment, tags=tags, run_name=run.name)
            self._run = created.info.run_id
            settings = [entities.Param(key, value) for key, value in _flat(run.settings)]
            for first in range(0, len(settings), _MOST_PARAMS):
                self._client.log_batch(self._run, params=settings[first : first + _MOST_PARAMS])

    def _earlier(self, experiment: str, folder: str) -> str | None:
        runs = self._client.search_runs(
            [experiment],
            f"tags.`{_FOLDER_TAG}` = '{folder}'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
        )
        return runs[0].info.run_id if runs else None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """See `RunLogger`."""
        now = int(1000 * time.time())
        metric = self._entities.Metric
        metrics = [metric(tag, value, now, step) for tag, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def text(self, step: int, tag: str, markdown: str) -> None:
        """See `RunLogger`."""
        self._client.log_text(self._run, markdown, f"{tag}-{step}.md")

    def close(self, failed: bool) -> None:
        """See `RunLogger`."""
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


class TrackioLogger(RunLogger):
    """Logs to Trackio, which knows a run by its name."""

    def __init__(self, run: LoggedRun, options: TrackerOptions) -> None:
        import trackio

        self._run = trackio.init(
            project=options.project,
            name=run.name,
            config=dict(_flat(run.settings)),
            resume="never" if run.step is None else "allow",
            embed=False,
        )

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """See `RunLogger`."""
        self._run.log(dict(values), step=step)

    def close(self, failed: bool) -> None:
        """See `RunLogger`."""
        self._run.finish()


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and values as text."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, str(value)


def _tracker(*, name: str, title: str, build: Any) -> Component:
    return Component(
        kind="logger",
        name=name,
        help=f"Logs to {title} (the package {name} must be installed).",
        build=build,
        options=TrackerOptions,
    )


WANDB = _tracker(name="wandb", title="Weights & Biases", build=WandbLogger)
MLFLOW = _tracker(name="mlflow", title="MLflow", build=MLflowLogger)
TRACKIO = _tracker(name="trackio", title="Trackio", build=TrackioLogger)
