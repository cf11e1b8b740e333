"""A run sent to a cluster whose nodes know nothing of rss_rl and share no files with it.

Data and run are at URIs. Here they are file:// ones, the only thing that both sides reach.

The head has no CPU for tasks, so that every sampler runs on the second node, while the learner,
which asks for none here, runs on the head.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from invoking import invoke
from ray_nodes import Nodes, forget_token, new_token
from tiny_runs import Outcome

from rss_rl.config import RunConfig

# Ray's client says so to a newer aiohttp than it knows.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

WAIT_S = 130
FAR = "far"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    made = Nodes(new_token())
    try:
        made.start_head(cpus=0, dashboard=True)
        made.join(FAR, cpus=4)
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def client(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This side has the token, and nothing else of Ray's in its environment."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(nodes.token_path))
    monkeypatch.setenv("RAY_ADDRESS", nodes.dashboard)
    yield
    monkeypatch.undo()
    forget_token()


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def config(tiny: Callable[..., RunConfig], tmp_path: Path) -> Callable[..., Path]:
    """Writes the tiny configuration with Ray samplers to a file."""

    def write(**changes: Any) -> Path:
        run = tiny(sampler={"backend": "ray", "actors": 1}, **changes)
        path = tmp_path / "tiny.yaml"
        tree = run.model_dump(mode="json")
        tree["data"] = Path(tree["data"]).as_uri()
        path.write_text(yaml.safe_dump(tree))
        return path

    return write


def submit(config: Path, storage: Path) -> list[str]:
    """`rss-rl submit`; the commands that it prints, to follow, stop and list."""
    command = ["submit", str(config), "--storage", storage.as_uri(), "--cpus", "0"]
    result = invoke(command)
    assert result.exit_code == 0, result.output
    return re.findall(r"^  (RAY_AUTH_MODE=token ray job .*)$", result.stdout, re.MULTILINE)


def shell(nodes: Nodes, command: str) -> str:
    """What a command prints, of which `ray` is the nodes'."""
    command = command.replace(" ray ", f" {sys.executable} -m ray.scripts.scripts ")
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=WAIT_S)
    return done.stdout + done.stderr


def test_the_nodes_do_not_know_the_code(nodes: Nodes) -> None:
    """Else the other tests would prove nothing."""
    for name, code in {"ray": 0, "torch": 0, "rss_rl": 1}.items():
        command = [
            nodes.bin / "python",
            "-c",
            f"import importlib.util as u; exit(not u.find_spec('{name}'))",
        ]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        assert subprocess.run(command, cwd=nodes.root, env=clean, check=False).returncode == code


def test_a_job_is_the_run_it_would_be_here(
    nodes: Nodes, config: Callable[..., Path], storage: Path, reference: Outcome
) -> None:
    follow, _, every = submit(config(), storage)
    printed = shell(nodes, follow)
    assert "SUCCEEDED" in shell(nodes, every), printed
    assert "co-train" in printed
    assert str(nodes.token) not in printed
    Outcome.read(storage).assert_equals(reference)
    seen = {path.parent.parent.parent.name for path in nodes.root.rglob("rss_rl/cli/main.py")}
    assert seen  # the code that was sent
    assert list((nodes.root / FAR).rglob("rss_rl/cli/main.py"))  # on the samplers' node, too


class TestRefusals:
    """Before anything is sent."""

    def submit(self, *options: str) -> str:
        result = invoke(["submit", "sick", *options])
        assert result.exit_code == 2, result.output
        return result.stderr

    @pytest.mark.parametrize("place", ["runs/first", "/data/first"])
    def test_a_path_that_only_this_machine_sees(self, place: str) -> None:
        assert "data is a path on this machine" in self.submit("--storage", "s3://bucket/run")
        message = self.submit("data=s3://bucket/data", "--storage", place)
        assert "--storage is a path on this machine" in message
