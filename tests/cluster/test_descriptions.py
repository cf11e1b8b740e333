"""The shipped descriptions of clusters are well formed, hold no secret, and name runs there are."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml

from rss_rl.cli.main import COMMANDS
from rss_rl.config import RunConfig, load_config
from rss_rl.packaged import find_config

LAUNCHER, KUBERNETES = "ray-cluster.yaml", "kuberay-rayjob.yaml"


@pytest.fixture
def folder(repository: Path) -> Path:
    return repository / "examples" / "cluster"


def parse(command: str) -> tuple[dict[str, Any], RunConfig]:
    """A command of ours by our own parser, and the configuration it would run."""
    words = shlex.split(command)
    given = COMMANDS.parse_args(words)[1].arguments
    return given, load_config(find_config(given["config"]), given["overrides"])


def check_run(command: str) -> None:
    """It uses Ray samplers, and nothing that only one machine sees."""
    given, config = parse(command)
    assert config.sampler.backend == "ray"
    assert config.learner.device == "cuda"
    assert config.data.startswith("s3://")
    assert given["storage"].startswith("s3://")


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

    def test_its_run_exists(self, spec: Any) -> None:
        start = "exec python -m rss_rl.cli.main "
        assert spec["entrypoint"].startswith(start)
        check_run(spec["entrypoint"].removeprefix(start))
