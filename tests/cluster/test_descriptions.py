"""The shipped descriptions of clusters are well formed, hold no secret, and name runs there are."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import typer
import yaml

from rss_rl.cli.main import app
from rss_rl.config import RunConfig, load_config
from rss_rl.packaged import find_config, packaged_configs

LAUNCHER, KUBERNETES = "ray-cluster.yaml", "kuberay-rayjob.yaml"


@pytest.fixture
def folder(repository: Path) -> Path:
    return repository / "configs" / "cluster"


def parse(command: str) -> tuple[dict[str, Any], RunConfig]:
    """A command of ours by our own parser, and the configuration it would run."""
    words = shlex.split(command)
    group: Any = typer.main.get_command(app)
    subcommand = group.commands[words[0]]
    with subcommand.make_context(words[0], words[1:]) as context:
        given = dict(context.params)
    return given, load_config(find_config(given["config"]), given["overrides"])


def check_run(command: str) -> None:
    """It uses Ray samplers, and nothing that only one machine sees."""
    given, config = parse(command)
    assert config.sampler.backend == "ray"
    assert config.learner.device == "cuda"
    assert config.data.startswith("s3://")
    assert given["storage"].startswith("s3://")


def test_they_are_not_taken_for_runs(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {LAUNCHER, KUBERNETES}
    assert not [name for name in packaged_configs() if "cluster" in name]


@pytest.mark.parametrize("name", [LAUNCHER, KUBERNETES])
def test_no_secret_is_in_the_file(folder: Path, name: str) -> None:
    text = (folder / name).read_text()
    assert not re.search(r"[0-9a-f]{32}|AKIA[0-9A-Z]{16}|RAY_AUTH_TOKEN\b", text)


class TestLauncher:
    """`ray up`."""

    @pytest.fixture
    def tree(self, folder: Path) -> Any:
        return yaml.safe_load((folder / LAUNCHER).read_text())

    @pytest.fixture
    def schema(self) -> Any:
        file = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
        return json.loads(file.read_text())

    def test_ray_accepts_it(self, tree: Any, schema: Any) -> None:
        jsonschema.validate(tree, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**tree, "max_worker": 3}, schema)

    def test_every_node_checks_the_token(self, tree: Any) -> None:
        commands = tree["head_start_ray_commands"] + tree["worker_start_ray_commands"]
        starts = [command for command in commands if "ray start" in command]
        assert len(starts) == 2
        assert all("RAY_AUTH_MODE=token ray start" in command for command in starts)
        assert list(tree["file_mounts"].values()) == ["~/.ray/auth_token"]
        assert "--dashboard-host=127.0.0.1" in starts[0]

    def test_the_head_trains_nothing(self, tree: Any) -> None:
        types = tree["available_node_types"]
        assert types[tree["head_node_type"]]["resources"] == {"CPU": 0, "GPU": 0}
        assert any("--num-cpus=0" in command for command in tree["head_start_ray_commands"])
        assert sum(kind["resources"].get("GPU", 0) > 0 for kind in types.values()) == 1

    def test_nodes_have_what_we_need(self, tree: Any, repository: Path) -> None:
        """Those of pyproject.toml but for Ray, which is the image's."""
        project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
        needed = {name for name in project["dependencies"] if not name.startswith("ray[")}
        (install,) = (line for line in tree["setup_commands"] if line.startswith("pip install"))
        assert set(shlex.split(install)[2:]) == needed

    def test_the_run_in_its_header_exists(self, folder: Path) -> None:
        text = (folder / LAUNCHER).read_text()
        (line,) = re.findall(r"^# +rss-rl (submit .*)$", text, re.MULTILINE)
        check_run(line)


class TestKubernetes:
    """`kubectl apply`."""

    @pytest.fixture
    def spec(self, folder: Path) -> Any:
        return yaml.safe_load((folder / KUBERNETES).read_text())["spec"]

    def test_every_pod_checks_the_token(self, spec: Any) -> None:
        cluster = spec["rayClusterSpec"]
        assert cluster["authOptions"]["mode"] == "token"
        assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"  # it trains nothing

    def test_one_group_has_the_gpu_the_learner_asks_for(self, spec: Any) -> None:
        groups = spec["rayClusterSpec"]["workerGroupSpecs"]
        limits = [g["template"]["spec"]["containers"][0]["resources"]["limits"] for g in groups]
        fit = [
            limit
            for limit in limits
            if float(limit.get("nvidia.com/gpu", 0)) >= spec["entrypointNumGpus"] > 0
            and float(limit["cpu"]) >= spec["entrypointNumCpus"]
        ]
        assert len(fit) == 1

    def test_its_run_exists(self, spec: Any) -> None:
        start = "exec python -m rss_rl.cli.main "
        assert spec["entrypoint"].startswith(start)
        check_run(spec["entrypoint"].removeprefix(start))
