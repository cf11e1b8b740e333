"""The package `examples`, which rss-rl does not know: installed for real, checked, and trained."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULES = sorted(path.stem for path in (EXAMPLES / "rss_rl_examples").glob("[a-z]*.py"))
CHECKS = """
from rss_rl.components import find_component
from rss_rl.testing import *

check_policy(find_component("policy", "sparsemax"), 6, {"temperature": 0.5})
check_encoder(find_component("encoder", "dilated"), 6)
check_reward_model(find_component("reward_model", "margin"))
"""
LOADS = """
import sys, rss_rl
model = rss_rl.load(sys.argv[1])
assert "ray" not in sys.modules
print(model, model.predict(["Team wins the final match"]))
"""
SMALL = (
    "batch_size=8", "model.hidden=6", "model.head_hidden=6", "policy.options.hidden=6",
    "evaluation.every=4", "evaluation.all_tokens=false", "phases.0.steps=4", "phases.1.steps=4",
    "phases.2.steps=4", "phases.3.steps=4",
)  # fmt: skip
PLUGGED = (
    "model.encoder={name: dilated, options: {layers: 2}}",
    "reward.model={name: margin, options: {limit: 1.5}}",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a directory of its own; built from a copy, so that nothing is left behind."""
    folder = tmp_path_factory.mktemp("examples")
    source = shutil.copytree(EXAMPLES, folder / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(folder / "target"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return folder / "target"


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


class Commands:
    """Runs programs with the package on the path, as it is where it is installed."""

    def __init__(self, place: Path, installed: Path | None) -> None:
        paths = [str(installed)] if installed else []
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        self._environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }  # fmt: skip
        self._place = place

    def python(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=200,
            env=self._environment, cwd=self._place,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rss_rl(self, *words: str) -> str:
        return self.python("-m", "rss_rl.cli.main", *words)


@pytest.fixture
def commands(installed: Path, tmp_path: Path) -> Commands:
    return Commands(tmp_path, installed)


@pytest.mark.parametrize("module", MODULES)
def test_each_is_one_short_file(module: str) -> None:
    lines = (EXAMPLES / "rss_rl_examples" / f"{module}.py").read_text().splitlines()
    assert len(lines) < 60
    assert module not in (EXAMPLES.parent / "pyproject.toml").read_text()


def test_each_keeps_the_promises_of_its_kind(commands: Commands, news: Path) -> None:
    commands.python("-c", CHECKS)
    assert "rss-rl-examples 1.0" in commands.rss_rl("components", "encoders")


def test_they_train_resume_are_scored_exported_and_loaded(commands: Commands, news: Path) -> None:
    commands.rss_rl("data", "prepare", "ag-news", "--from", str(news), "--dim", "6",
                    "--option", "title_only=true", "--out", "data")  # fmt: skip
    train = ("train", "own", "data=data", *SMALL, *PLUGGED, "--run-dir")
    commands.rss_rl(*train, "local")
    ray = ("sampler.backend=ray", "sampler.actors=1", "sampler.shards=1")
    commands.rss_rl(*train, "ray", *ray)
    reports = [json.loads(commands.rss_rl("report", run, "--json")) for run in ("local", "ray")]
    scores = [report["splits"]["test"]["thresholded"] for report in reports]
    assert scores[0] == scores[1]  # whoever samples
    commands.rss_rl(*train, "stopped", "--time", "0.1s")  # each phase ends after its first update
    assert "thresholded" in commands.rss_rl("evaluate", "stopped", "--mode", "thresholded")
    commands.rss_rl("train", "--resume", "local")  # finished: named by entry points, so opened
    commands.rss_rl("export", "local", "--out", "exported")
    assert "encoder dilated" in commands.python("-c", LOADS, "exported")


def test_a_gated_policy_learns_from_the_classifiers_loss(commands: Commands, news: Path) -> None:
    commands.rss_rl(
        "data", "prepare", "ag-news", "--from", str(news), "--dim", "6", "--out", "data"
    )
    small = [word for word in SMALL if "policy.options" not in word]
    commands.rss_rl(
        "train", "own", "data=data", *small, "model.encoder=source2token", "policy=sparsemax",
        "learner.entropy_cost=0.0", "--run-dir", "run",
    )  # fmt: skip
    assert "[" in commands.rss_rl("select", "run", "Team wins the final match")


def test_one_in_the_working_directory_needs_no_installation(tmp_path: Path, news: Path) -> None:
    shutil.copy(EXAMPLES / "rss_rl_examples" / "ag_news.py", tmp_path / "my_source.py")
    shutil.copy(EXAMPLES / "rss_rl_examples" / "dilated_encoder.py", tmp_path / "my_encoder.py")
    commands = Commands(tmp_path, None)
    commands.rss_rl("data", "prepare", "my_source:AG_NEWS", "--from", str(news), "--dim", "6",
                    "--out", "data")  # fmt: skip
    commands.rss_rl("train", "own", "data=data", *SMALL, "model.encoder=my_encoder:DILATED",
                    "sampler.backend=ray", "sampler.actors=1", "--run-dir", "run")  # fmt: skip
    refused = subprocess.run(
        [sys.executable, "-m", "rss_rl.cli.main", "select", "run", "a text"],
        capture_output=True, text=True, timeout=200, cwd=tmp_path,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "model.encoder.name" in refused.stderr
    commands.rss_rl("select", "run", "a text", "--trust-plugins")
