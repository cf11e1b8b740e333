"""A policy in a package of its own: installed for real, found by name, and trained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import TinySource, tiny_tree

from rss_rl.data.prepare import prepare

EXAMPLE = Path(__file__).parent.parent / "plugin_example"
CHECK = """
import json, sys
from pathlib import Path
from rss_rl.components import EVERYTHING, find_component
from rss_rl.config import parse_config
from rss_rl.runtime.run import Finished, train
from rss_rl.runtime.run_directory import RunDirectory
from rss_rl.testing import check_policy

check_policy(find_component("policy", "logistic"), 5, {"scale": 3.0})
for name in ("logistic", "logistic_policy:LOGISTIC"):
    tree = json.loads(Path(sys.argv[1]).read_text())
    tree["policy"] = {"name": name, "options": {"scale": 2.0}}
    folder = Path(sys.argv[2]) / name.replace(":", "_")
    config = parse_config(tree, where="", trust=EVERYTHING)
    assert any(isinstance(e, Finished) for e in train(config, folder))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in a directory of its own; built from a copy, so that nothing is left behind."""
    folder = tmp_path_factory.mktemp("plugin")
    source, target = folder / "source", folder / "target"
    source.mkdir()
    for name in ("pyproject.toml", "logistic_policy.py"):
        (source / name).write_text((EXAMPLE / name).read_text())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return target


def test_an_installed_policy_is_found_by_name_and_trains(installed: Path, tmp_path: Path) -> None:
    prepare(TinySource(), tmp_path / "data", dim=8)
    tree = tiny_tree(tmp_path / "data")
    tree["evaluation"]["all_tokens"] = False
    for phase in tree["phases"]:
        phase["steps"] = 2
    (tmp_path / "config.json").write_text(json.dumps(tree))
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")]), str(Path.cwd())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHECK, str(tmp_path / "config.json"), str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "logistic" / "report.json").exists()


def test_the_example_is_short() -> None:
    assert len((EXAMPLE / "logistic_policy.py").read_text().splitlines()) <= 40
