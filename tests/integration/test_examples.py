"""The package `examples`, which rss-rl does not know: installed for real, checked, and trained."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoking import invoke

import rss_rl
from rss_rl import components, testing
from rss_rl.components import find_component
from rss_rl.config import load_config
from rss_rl.packaged import find_config
from rss_rl.training.run import train as train_run

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULES = sorted(path.stem for path in (EXAMPLES / "rss_rl_examples").glob("[a-z]*.py"))
SMALL = (
    "batch_size=8", "model.hidden=6", "model.head_hidden=6", "policy.options.hidden=6",
    "evaluation.every=4", "evaluation.all_tokens=false", "phases.0.steps=4", "phases.1.steps=4",
    "phases.2.steps=4", "phases.3.steps=4",
)  # fmt: skip
PLUGGED = (
    "model.encoder={name: dilated, options: {layers: 2}}",
    "reward.model={name: margin, options: {limit: 1.5}}",
    "learner.policy_update=disarm",
)


def forget_plugins() -> None:
    """Look for installed components again."""
    components._all_entry_points.cache_clear()
    components._installed.cache_clear()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In a directory of its own; built from a copy, so that nothing is left behind."""
    folder = tmp_path_factory.mktemp("examples")
    source = shutil.copytree(EXAMPLES, folder / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(folder / "target"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "target")
        patch.setenv("PYTHONPATH", str(folder / "target"), prepend=os.pathsep)  # for samplers
        forget_plugins()
        yield
    forget_plugins()


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made articles in AG News' form."""
    folder, draw = tmp_path_factory.mktemp("news"), random.Random(0)
    topics = ("treaty border", "match team", "market shares", "robot software")
    for name, count in (("train", 80), ("test", 16)):
        lines = []
        for number in range(count):
            words = [*topics[number % 4].split(), "says", "report", "today", "again"]
            draw.shuffle(words)
            text = " ".join(words)
            lines.append(f'"{number % 4 + 1}","{text.title()}","A ""{text}"", they say."\n')
        (folder / f"{name}.csv").write_text("".join(lines))
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, code: int = 0) -> str:
    """What a command prints; its message where it ends with `code`."""
    result = invoke(words, env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_rss_rl_names_none_of_them() -> None:
    project = (EXAMPLES.parent / "pyproject.toml").read_text()
    assert MODULES
    assert not [module for module in MODULES if module in project]


@pytest.mark.usefixtures("installed")
def test_each_keeps_the_promises_of_its_kind() -> None:
    testing.check_policy(find_component("policy", "sparsemax"), 6, {"temperature": 0.5})
    testing.check_encoder(find_component("encoder", "dilated"), 6)
    testing.check_reward_model(find_component("reward_model", "margin"))
    assert "rss-rl-examples 1.0" in run("components", "encoders")


@pytest.mark.usefixtures("installed", "place")
def test_they_train_resume_are_scored_exported_and_loaded(news: Path) -> None:
    run("data", "prepare", "ag-news", "--from", str(news), "--dim", "6",
        "--option", "title_only=true", "--out", "data")  # fmt: skip
    train = ("train", "own", "data=data", *SMALL, *PLUGGED, "--out")
    run(*train, "local")
    run(*train, "ray", "sampler.backend=ray", "sampler.actors=1", "sampler.shards=1")
    reports = [json.loads(Path(name, "report.json").read_text()) for name in ("local", "ray")]
    scores = [report["splits"]["test"]["thresholded"] for report in reports]
    assert scores[0] == scores[1]  # whoever samples
    updates = itertools.count()
    config = load_config(find_config("own"), ["data=data", *SMALL, *PLUGGED])
    list(train_run(config, Path("resumed"), stop=lambda: next(updates) == 10))
    run("train", "--resume", "resumed")
    again = json.loads(Path("resumed", "report.json").read_text())
    assert again["splits"]["test"]["thresholded"] == scores[0]
    run(*train, "stopped", "--time", "0.1s")  # each phase ends after its first update
    assert "thresholded" in run("evaluate", "stopped", "--mode", "thresholded")
    run("train", "--resume", "local")  # finished: named by entry points, so opened
    run("export", "local", "--out", "exported")
    model = rss_rl.load("exported")
    assert "Encoder dilated" in str(model)
    assert model.predict(["Team wins the final match"])


@pytest.mark.usefixtures("installed", "place")
def test_a_gated_policy_learns_from_the_classifiers_loss(news: Path) -> None:
    run("data", "prepare", "ag-news", "--from", str(news), "--dim", "6", "--out", "data")
    small = [word for word in SMALL if "policy.options" not in word]
    gated = ("model.encoder=source2token", "policy=sparsemax", "learner.entropy_cost=0.0")
    run("train", "own", "data=data", *small, *gated, "--out", "run")
    assert "[" in run("select", "run", "Team wins the final match")


def test_one_in_the_working_directory_needs_no_installation(place: Path, news: Path) -> None:
    shutil.copy(EXAMPLES / "rss_rl_examples" / "ag_news.py", place / "my_source.py")
    shutil.copy(EXAMPLES / "rss_rl_examples" / "dilated_encoder.py", place / "my_encoder.py")
    run("data", "prepare", "my_source:AG_NEWS", "--from", str(news), "--dim", "6", "--out", "data")
    run("train", "own", "data=data", *SMALL, "model.encoder=my_encoder:DILATED",
        "sampler.backend=ray", "sampler.actors=1", "--out", "run")  # fmt: skip
    assert "model.encoder.name" in run("select", "run", "a text", code=2)
    run("select", "run", "a text", "--trust-plugins")
