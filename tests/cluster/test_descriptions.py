"""The shipped descriptions of clusters are well formed, hold no secret, and name runs there are."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
import ray
import typer
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

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


def _quantity(text: str) -> str:
    """Of Kubernetes: a number with a unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m|[kMGTPE]|[KMGTPE]i)?", text)
    if match is None or Decimal(match[1]) <= 0:
        raise ValueError("no quantity of Kubernetes")
    return text


Quantity = Annotated[str, AfterValidator(_quantity)]
Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SecretKey(Part):
    name: Label
    key: str


class ValueFrom(Part):
    secretKeyRef: SecretKey


class Variable(Part):
    name: Annotated[str, Field(pattern=r"^[A-Z_]+$")]
    valueFrom: ValueFrom  # never a value: these are secrets


class Port(Part):
    name: Label
    containerPort: Annotated[int, Field(gt=0, lt=65536)]


class Resources(Part):
    requests: dict[Literal["cpu", "memory", "nvidia.com/gpu"], Quantity]
    limits: dict[Literal["cpu", "memory", "nvidia.com/gpu"], Quantity]


class Container(Part):
    name: Label
    image: str
    ports: list[Port] = []
    env: list[Variable] = []
    resources: Resources


class Toleration(Part):
    key: str
    operator: Literal["Exists", "Equal"]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class PodSpec(Part):
    containers: Annotated[list[Container], Field(min_length=1)]
    tolerations: list[Toleration] = []


class Pod(Part):
    spec: PodSpec


class Head(Part):
    rayStartParams: dict[str, str]
    template: Pod


class Workers(Head):
    groupName: Label
    replicas: int
    minReplicas: Annotated[int, Field(ge=0)]
    maxReplicas: int

    @model_validator(mode="after")
    def _in_order(self) -> Workers:
        assert self.minReplicas <= self.replicas <= self.maxReplicas
        return self


class Auth(Part):
    mode: Literal["token", "disabled"]
    secretName: Label


class Cluster(Part):
    rayVersion: str
    authOptions: Auth
    headGroupSpec: Head
    workerGroupSpecs: list[Workers]


class JobSpec(Part):
    entrypoint: str
    entrypointNumCpus: float
    entrypointNumGpus: float
    backoffLimit: Annotated[int, Field(ge=0)]
    shutdownAfterJobFinishes: bool
    ttlSecondsAfterFinished: Annotated[int, Field(ge=0)]
    runtimeEnvYAML: str
    rayClusterSpec: Cluster


class Metadata(Part):
    name: Annotated[Label, Field(max_length=47)]  # KubeRay appends to it


class RayJob(Part):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: JobSpec


class TestKubernetes:
    """`kubectl apply`."""

    @pytest.fixture
    def tree(self, folder: Path) -> Any:
        return yaml.safe_load((folder / KUBERNETES).read_text())

    @pytest.fixture
    def job(self, tree: Any) -> JobSpec:
        return RayJob.model_validate(tree).spec

    def test_a_misspelt_key_or_quantity_is_found(self, tree: Any) -> None:
        container = tree["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"][
            "containers"
        ][0]
        container["resources"]["limits"]["memory"] = "8 GB"
        with pytest.raises(ValidationError, match="no quantity"):
            RayJob.model_validate(tree)

    def test_every_pod_checks_the_token(self, job: JobSpec) -> None:
        assert job.rayClusterSpec.authOptions.mode == "token"

    def test_the_head_trains_nothing(self, job: JobSpec) -> None:
        assert job.rayClusterSpec.headGroupSpec.rayStartParams["num-cpus"] == "0"

    def test_one_group_has_the_gpu_the_learner_asks_for(self, job: JobSpec) -> None:
        groups = job.rayClusterSpec.workerGroupSpecs
        limits = [group.template.spec.containers[0].resources.limits for group in groups]
        fit = [
            limit
            for limit in limits
            if float(limit.get("nvidia.com/gpu", "0")) >= job.entrypointNumGpus > 0
            and float(limit["cpu"]) >= job.entrypointNumCpus
        ]
        assert len(fit) == 1

    def test_one_image_of_one_version(self, job: JobSpec, folder: Path) -> None:
        cluster = job.rayClusterSpec
        pods = [cluster.headGroupSpec, *cluster.workerGroupSpecs]
        assert len({pod.template.spec.containers[0].image for pod in pods}) == 1
        assert f"FROM rayproject/ray:{cluster.rayVersion}-" in (folder / KUBERNETES).read_text()
        assert yaml.safe_load(job.runtimeEnvYAML)["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"] == "60"

    def test_its_run_exists(self, job: JobSpec) -> None:
        start = "exec python -m rss_rl.cli.main "
        assert job.entrypoint.startswith(start)
        check_run(job.entrypoint.removeprefix(start))
