"""Who computes attention is chosen once, where a run begins, for all its processes and resumes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.logs.events import EventSink
from rss_rl.models import attention_choice
from rss_rl.reading.trained_runs import open_models
from rss_rl.rollouts.backend import Backend
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.training.attempts import LocalRoles
from rss_rl.training.run import ALL_TOKENS, train
from rss_rl.training.trainer import Stopped


class ToldRoles(LocalRoles):
    """What learners and samplers are told of attention."""

    def __init__(self) -> None:
        self.output: list[str] = []

    def learner(self, config: RunConfig, prepared: Prepared):  # type: ignore[no-untyped-def]
        self.output.append(config.model.attention)
        return super().learner(config, prepared)

    def backend(self, config: RunConfig, prepared: Prepared, log: EventSink) -> Backend:
        self.output.append(config.model.attention)
        return super().backend(config, prepared, log)


def compiler(monkeypatch: pytest.MonkeyPatch, missing: str | None) -> None:
    monkeypatch.setattr(attention_choice, "missing_compiler", lambda: missing)


def test_a_run_keeps_what_the_machine_it_began_on_chose(
    tiny_config: RunConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    compiler(monkeypatch, "no compiler here")
    began, asked = ToldRoles(), iter([False] * 5 + [True])
    path = tmp_path / "run"
    events = list(train(tiny_config, path, roles=began, stop=lambda: next(asked)))
    assert isinstance(events[-1], Stopped)
    assert began.output == ["eager", "eager"]
    warned = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "no compiler here" in warned[0].getMessage()
    compiler(monkeypatch, None)  # as if it were resumed on another machine
    resumed = ToldRoles()
    list(train(tiny_config, path, roles=resumed, resume=True))
    assert resumed.output == ["eager"] * 3  # the comparison with every token samples nothing
    for part in (path, path / ALL_TOKENS):  # asked for was, and is, `auto`
        assert RunDirectory.open(part).config["model"]["attention"] == "auto"


def test_a_run_of_compiled_attention_is_not_resumed_where_there_is_no_compiler(
    tiny_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(monkeypatch, "no compiler here")
    path = tmp_path / "run"
    list(train(tiny_config, path, stop=lambda: True))
    with RunDirectory.open(path, lock=True) as run:
        run.settle("model.attention", "compiled")
    with pytest.raises(ConfigError, match=r"no compiler here.*resumes only where"):
        list(train(tiny_config, path, resume=True))
    open_models(path, "latest")  # to be scored it need not agree to the bit
