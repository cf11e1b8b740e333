"""A run sent to a cluster whose nodes know nothing of rss_rl and share no files with it.

Data and run are at URIs. Here they are file:// ones, the only thing that both sides reach.

The head has no CPU for tasks, so that every sampler runs on the second node, while the learner,
which asks for none here, runs on the head.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray_nodes import Nodes, free_port, new_token
from tiny_runs import Outcome
from typer.testing import CliRunner

from rss_rl.cli.main import app
from rss_rl.cluster.connection import token_mode
from rss_rl.cluster.jobs import open_board
from rss_rl.cluster.package import pack_code
from rss_rl.config import RunConfig
from rss_rl.errors import ClusterError

# Ray's client says so to a newer aiohttp than it knows.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

WAIT_S = 130
FAR = "far"
PINNED = """
import json, os
import ray
from rss_rl.cluster.connection import connect, shutdown
from rss_rl.cluster.processes import inside_job

def look():
    import rss_rl.envs, rss_rl.learners
    node = ray.get_runtime_context().get_node_id()
    return {"code": rss_rl.__file__, "home": os.environ["HOME"], "node": node}

info = connect()
far = ray.remote(num_cpus=1, resources={"far": 1})(look)
seen = {"far": ray.get(far.remote(), timeout=40), "here": look(), "job": inside_job()}
seen["nodes"], seen["guarded"] = info.nodes, info.authenticated
shutdown(info)
print("SEEN" + json.dumps(seen))
"""


@pytest.fixture(scope="module", autouse=True)
def ray_as_it_was() -> Iterator[None]:
    """Ray keeps the way it authenticates in compiled code, where no undoing reaches."""
    yield
    token_mode(os.environ.get("RAY_AUTH_MODE"))


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
    token_mode(None)


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


HERE = (sys.executable, "-m", "rss_rl.cli.main")


def submitting(
    config: Path, storage: Path, *options: str, cwd: Path, program: Sequence[str] = HERE
) -> subprocess.Popen[str]:
    """`rss-rl submit` in a process of its own."""
    command = [*program, "submit", str(config)]
    command += ["--storage", storage.as_uri(), "--cpus", "0", *options]
    return subprocess.Popen(
        command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def submit(
    config: Path, storage: Path, *options: str, cwd: Path, program: Sequence[str] = HERE
) -> tuple[int, str]:
    """Its exit code and what it printed."""
    with submitting(config, storage, *options, cwd=cwd, program=program) as process:
        try:
            printed, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    return process.returncode, printed


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


def test_a_job_from_the_wheel_is_the_run_it_would_be_here(
    nodes: Nodes,
    config: Callable[..., Path],
    storage: Path,
    reference: Outcome,
    installed: Path,
    tmp_path: Path,
) -> None:
    for name in ("envs", "learners"):  # somebody else's, where the command is typed
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not rss_rl')\n")
    program = (str(installed / "python"), "-m", "rss_rl.cli.main")
    code, printed = submit(config(), storage, cwd=tmp_path, program=program)
    assert code == 0, printed
    assert "SUCCEEDED" in printed
    assert "co-train" in printed
    assert "packaging.py" not in printed  # chatter of Ray's client
    assert str(nodes.token) not in printed
    Outcome.read(storage).assert_equals(reference)


def test_the_code_comes_with_the_job(nodes: Nodes, tmp_path: Path) -> None:
    """A task pinned to the second node imports what was sent, from that node's own files."""
    packed = pack_code(tmp_path / "code", "")
    (packed.root / "pinned.py").write_text(PINNED)
    board = open_board(None)
    options = {"runtime_env": {"working_dir": str(packed.root)}}
    board.submit("pinned", "exec python pinned.py", "", **options)
    shutil.rmtree(packed.root)
    job = board.wait("pinned", WAIT_S)
    log = board.log("pinned")
    assert job.status == "SUCCEEDED", log
    assert "worker.py" not in log  # chatter of Ray's driver
    seen = json.loads(log.rpartition("SEEN")[2].partition("\n")[0])
    assert seen["far"]["code"].startswith(str(nodes.root / FAR))
    assert seen["here"]["code"].startswith(str(nodes.root / "head"))
    assert seen["far"]["home"] == str(nodes.root / FAR / "home")
    assert seen["far"]["node"] != seen["here"]["node"]
    assert (seen["nodes"], seen["guarded"], seen["job"]) == (2, True, True)


@pytest.mark.slow  # below a job is stopped by its name, in test_interrupt a run by Ctrl-C
def test_stopped_by_ctrl_c_and_resumed(
    config: Callable[..., Path], storage: Path, tmp_path: Path
) -> None:
    phases = [
        {"name": "warm-up", "supervised": True, "selection": "all", "steps": 5},
        {"name": "frozen", "policy": True, "steps": 10_000},
    ]
    file = config(phases=phases, evaluation={"every": 20}, checkpoint={"every": 50})
    same = ["submit", str(file), "--storage", storage.as_uri(), "--cpus", "0"]
    with submitting(file, storage, "--name", "first", cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            printed = ""
            while not re.search(r"frozen \d\d+ ", printed):  # an evaluation after the first
                line = process.stdout.readline()
                assert line, printed
                printed += line
            twice = CliRunner().invoke(app, same)
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 130, printed + rest
    assert "STOPPED: first-" in rest
    stopped = re.search(r"Stopped after update (\d+)", rest)
    assert stopped, rest
    assert twice.exit_code == 2
    assert re.search("job first-.* is training there already", twice.stderr)

    sent = CliRunner().invoke(app, [*same, "--name", "second", "--detach"])
    (name,) = re.findall(r"^Job: (\S+)", sent.stdout, re.MULTILINE)
    began = _wait_for(name, r"frozen (\d+)  dev")
    assert int(began) >= int(stopped[1])
    ended = CliRunner().invoke(app, ["job", "stop", name])
    assert f"STOPPED: {name}" in ended.stdout, ended.output
    assert "warm-up" not in open_board(None).log(name)
    assert _listed() >= {("first", "STOPPED"), ("second", "STOPPED")}


def _wait_for(job: str, pattern: str) -> str:
    """The group of `pattern` in what the job prints."""
    board, deadline = open_board(None), time.monotonic() + WAIT_S
    while not (found := re.search(pattern, board.log(job))):
        assert time.monotonic() < deadline, board.log(job)
        time.sleep(0.5)
    return found[1]


def test_a_failed_job_is_a_failed_command() -> None:
    open_board(None).submit("broken", "echo before the end; exit 3", "")
    for command, code in {"logs": 1, "status": 1, "logs --no-follow": 0}.items():
        result = CliRunner().invoke(app, ["job", *command.split(), "broken"])
        assert result.exit_code == code, result.output
        assert ("before the end" in result.stdout) == ("logs" in command)
        assert ("FAILED" in result.stdout) == (code == 1)


def test_a_job_is_stopped_by_its_name(nodes: Nodes) -> None:
    board = open_board(None)
    board.submit("sleeper", "exec sleep 600", "s3://bucket/run")
    with pytest.raises(ClusterError, match="job sleeper is training there already"):
        board.submit("twin", "exec sleep 600", "s3://bucket/run")
    began = time.monotonic()
    result = CliRunner().invoke(app, ["job", "stop", "sleeper"])
    assert result.exit_code == 0
    assert "STOPPED: sleeper" in result.stdout
    assert time.monotonic() - began < 30


class TestRefusals:
    """Before anything is sent."""

    def submit(self, *options: str) -> str:
        result = CliRunner().invoke(app, ["submit", "sick", *options])
        assert result.exit_code == 2, result.output
        return result.stderr

    def test_a_setting_that_is_wrong(self) -> None:
        assert "unknown key 'sed'" in self.submit("sed=1", "--storage", "s3://bucket/run")

    @pytest.mark.parametrize("place", ["runs/first", "/data/first"])
    def test_a_path_that_only_this_machine_sees(self, place: str) -> None:
        assert "data is a path on this machine" in self.submit("--storage", "s3://bucket/run")
        message = self.submit("data=s3://bucket/data", "--storage", place)
        assert "--storage is a path on this machine" in message

    def test_without_the_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
        assert "requires a token" in self.submit(*_shared(Path("/x")))

    def test_with_another_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "of-another-cluster")
        message = self.submit(*_shared(Path("/x")))
        assert "refuses the token of RAY_AUTH_TOKEN" in message
        assert "of-another" not in message

    def test_no_dashboard_there(self) -> None:
        address = f"http://127.0.0.1:{free_port()}"
        with pytest.raises(ClusterError, match="no Ray cluster answered"):
            open_board(address, timeout_s=1)

    def test_no_cluster_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RAY_ADDRESS")
        assert "--address" in self.submit(*_shared(Path("/x")))

    def test_the_address_of_the_head_will_do(self, nodes: Nodes) -> None:
        result = CliRunner().invoke(app, ["job", "list", "--address", nodes.address])
        assert result.exit_code == 0, result.output


def _shared(storage: Path) -> list[str]:
    return ["--storage", str(storage), "--shared-filesystem"]


def _listed() -> set[tuple[str, str]]:
    """What `rss-rl job list` shows: names without their time, and how they ended."""
    lines = CliRunner().invoke(app, ["job", "list"]).stdout.splitlines()
    return {(line.split()[0].partition("-")[0], line.split()[1]) for line in lines}
