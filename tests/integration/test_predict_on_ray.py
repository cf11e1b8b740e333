"""`rss-rl predict --address`: two nodes write what one process does, and continue after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from ray_nodes import Nodes, forget_token, new_token
from scored import outputs, texts_folder
from tiny_runs import command_line

from rss_rl.cluster.predict import score_on_ray
from rss_rl.components import NOTHING
from rss_rl.config import RunConfig
from rss_rl.errors import DataError
from rss_rl.inference.artifact import pack_model
from rss_rl.inference.model import load_model
from rss_rl.inference.predict import Scorer, begin
from rss_rl.training.run import train

# Ray Data itself sets what it calls deprecated.
pytestmark = [
    pytest.mark.slow,  # two nodes of its own, and two whole calls
    pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning"),
]
WAIT_S = 120.0
ROWS = {f"part-{number}.parquet": 400 + 4000 * (number > 1) for number in range(6)}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    made = Nodes(new_token(), installed=True)
    try:
        made.start_head(cpus=1, dashboard=False)
        made.join("second", cpus=1)
        yield made
    finally:
        made.close()
        forget_token()


@pytest.fixture(autouse=True)
def token(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(nodes.token_path))


@pytest.fixture(scope="module")
def run(tiny: Callable[..., RunConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    phases = [{"name": "all", "supervised": True, "policy": True, "steps": 4}]
    list(train(tiny(phases=phases, evaluation={"all_tokens": False}), path))
    return path


def scorers(nodes: Nodes, node: str) -> int:
    """How many processes of a node have been scorers."""
    logs = nodes.root.glob(f"{node}/r/session_2*/logs/worker-*.out")
    return sum("actor_name:MapWorker" in log.read_text() for log in logs)


def test_a_killed_call_goes_on_and_ends_as_one_that_never_was(
    run: Path, nodes: Nodes, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    source, target = texts_folder(tmp_path / "in", ROWS), tmp_path / "out"
    here = begin(
        pack_model(run).sha256, str(source), str(tmp_path / "here"), ("review",), share=0.3
    )
    scorer = Scorer(here, lambda: load_model(run))
    assert sum(scorer.score(name).rows for name in here.outputs) == sum(ROWS.values())
    given = ("--input", source, "--output", target, "--text", "review", "--address", nodes.address)
    given += ("--share", "0.3")
    processes.append(command_line("predict", run, *given, cwd=tmp_path))
    deadline = time.monotonic() + WAIT_S
    while not list(target.glob("*.parquet")):
        assert processes[0].poll() is None, processes[0].communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(processes[0].pid, signal.SIGKILL)
    processes[0].wait()
    kept = {name for name in outputs(target) if name in ROWS}
    assert 0 < len(kept) < len(ROWS)
    assert scorers(nodes, "head") + scorers(nodes, "second") == 2
    processes.append(command_line("predict", run, *given, cwd=tmp_path))
    output, said = processes[1].communicate(timeout=WAIT_S)
    assert processes[1].returncode == 0, said
    assert "were complete already" in output
    # A worker of the killed call may have outlived it for a while, and left a hidden file.
    assert {name for name in outputs(target) if not name.startswith(".")} == set(ROWS)
    for name in ROWS:
        one, other = (pq.ParquetFile(at / name).read() for at in (target, tmp_path / "here"))
        assert one.schema.equals(other.schema, check_metadata=True)
        assert one.column("prediction").equals(other.column("prediction"))
    assert scorers(nodes, "head") > 0
    assert scorers(nodes, "second") > 0


def test_a_file_that_kills_its_process_is_named(run: Path, nodes: Nodes, tmp_path: Path) -> None:
    class Deadly(fs.FileSystemHandler):  # local, so that it travels whole
        """A storage of which a file cannot be read and survived."""

        def get_type_name(self) -> str:
            return "deadly"

        def open_input_stream(self, path: str) -> Any:
            if path.endswith("deadly.parquet"):
                os.kill(os.getpid(), signal.SIGKILL)
            return fs.LocalFileSystem().open_input_stream(path)

    for name in fs.FileSystemHandler.__abstractmethods__ - {"get_type_name", "open_input_stream"}:
        setattr(Deadly, name, None)
    Deadly.__abstractmethods__ = frozenset()
    source = texts_folder(tmp_path / "in", {"deadly.parquet": 3, "good.parquet": 900})
    packed = pack_model(run)
    job = begin(packed.sha256, str(source), str(tmp_path / "out"), ("review",))
    deadly = replace(job.source, filesystem=fs.PyFileSystem(Deadly()))
    with pytest.raises(DataError, match=r"deadly\.parquet: .* was lost 3 times"):
        list(
            score_on_ray(packed, replace(job, source=deadly), NOTHING, print, address=nodes.address)
        )
