"""What the program of commit b9a4141 wrote can still be read, used and resumed.

`b9a4141/` was written by `make_golden.py`, and is never written again. A program that changes the
layout of configurations adapts `resolved` alone: how its configuration looks in the old layout.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from golden import (
    GOLDEN,
    TEXTS,
    assert_numbers,
    contents,
    final_report,
    final_tensors,
    machine,
    predictions,
    scores,
)
from typer.testing import CliRunner

from rss_rl.cli.main import app
from rss_rl.components import find_component
from rss_rl.config import RunConfig, load_config
from rss_rl.data.store import open_prepared

EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
RESOLVED = sorted((GOLDEN / "configs").glob("*.resolved.json"))
OF_ENCODERS = {
    "resan": {"keep_unselected", "unselected_context", "tanh_scale"},
    "": {"attention_error"},
    "disan": {"tanh_scale"},
    "biblosan": {"block_length", "sentence_block_length", "block_local", "block_global"}
    | {"tanh_scale"},
    "multi-head": {"attention_heads"},
    "cnn": {"cnn_windows", "cnn_filters"},
    "hierarchical-cnn": {"cnn_layers", "cnn_window"},
}
"""Settings of `model` that only these encoders read."""
_NETWORK = {"hidden", "shared", "context", "initial_probability"}
OF_POLICIES = {
    "rss": _NETWORK,
    "gumbel": _NETWORK,
    "hardkuma": _NETWORK,
    "top-k": _NETWORK - {"initial_probability"},
    "iterative": {"hidden", "shared", "cell", "initial_probability"},
    "bernoulli": {"initial_probability"},
}
"""Settings of `policy` that only these policies read."""
OF_BASELINES = {"moving-average": {"baseline_momentum"}}
OF_CORRECTIONS = {
    "truncated-sum": {"ratio_max"},
    "truncated-token": {"ratio_max"},
    "clipped-token": {"ratio_clip"},
}


def resolved(config: RunConfig) -> dict[str, Any]:
    """A configuration as b9a4141 dumped it; settings that have no effect may have any value."""
    tree = config.model_dump(mode="json")
    model, policy, learner = (dict(tree[name]) for name in ("model", "policy", "learner"))
    options: dict[str, Any] = {}
    slots = {"model": [config.model.encoder], "policy": [config.policy]}
    slots["model"] += [config.model.classifier] if config.model.classifier else []
    slots["learner"] = [config.estimator]
    for section, choices in slots.items():
        for choice in choices:
            was = choice.component.was or {}
            options |= {was.get(k, f"{section}.{k}"): v for k, v in choice.options.items()}
    old = json.loads((GOLDEN / "configs" / "defaults.json").read_text())
    for name, section in (("model", model), ("policy", policy), ("learner", learner)):
        before = {key.partition(".")[2]: v for key, v in options.items() if key.startswith(name)}
        own = {key: value for key, value in before.items() if key in old[name]}
        section |= {**old[name], **own}
    model.pop("classifier")
    assert policy.pop("pretrained") is None  # nobody read in context
    assert policy.pop("from_run") is policy.pop("layers") is None
    assert policy.pop("window") == "text"
    del learner["distillation"]
    model["encoder"] = config.model.encoder.name
    learner["estimator"] = config.estimator.name
    newer = {"model", "share_schedule"}
    reward = {key: value for key, value in tree["reward"].items() if key not in newer}
    phases = [{k: v for k, v in each.items() if k != "mixed_share"} for each in tree["phases"]]
    evaluation = {key: value for key, value in tree["evaluation"].items() if key != "metrics"}
    changed = {"model": model, "policy": policy, "learner": learner, "reward": reward}
    del tree["batch_tokens"], tree["batch_lengths"]
    sampler = {k: v for k, v in tree["sampler"].items() if k not in {"gpus", "batch_tokens"}}
    return tree | changed | {"evaluation": evaluation, "phases": phases, "sampler": sampler}


def effective(tree: dict[str, Any]) -> dict[str, Any]:
    """A dump of b9a4141 without what no chosen component reads; null estimators are named."""
    model, policy, learner = (dict(tree[name]) for name in ("model", "policy", "learner"))
    _keep(model, OF_ENCODERS, model["encoder"])
    _keep(policy, OF_POLICIES, policy["name"])
    # Options were those that were given, also such as another policy of the file's bases had; those
    # that the policy has and that were not given are at the defaults that they had.
    component = find_component("policy", policy["name"])
    fields = component.options.model_fields
    given = component.parse({k: v for k, v in policy["options"].items() if k in fields})
    was = {name: place.partition(".")[2] for name, place in (component.was or {}).items()}
    moved = set().union(*OF_POLICIES.values())
    policy["options"] = {
        name: value
        for name, value in given.model_dump().items()
        if was.get(name, name) not in moved
    }
    if learner["estimator"] is None:
        gated = policy["name"] in ("gumbel", "hardkuma", "top-k")
        learner["estimator"] = "pathwise" if gated else "reinforce"
    if learner["estimator"] == "ppo-clip":
        learner["correction"] = "clipped-token"
    scored = learner["estimator"] in ("reinforce", "ppo-clip")
    _keep(learner, OF_BASELINES, learner["baseline"] if scored else "")
    _keep(learner, OF_CORRECTIONS, learner["correction"] if scored else "")
    if not scored:
        del learner["baseline"], learner["correction"]
    return tree | {"model": model, "policy": policy, "learner": learner}


def _keep(section: dict[str, Any], owners: dict[str, set[str]], owner: str) -> None:
    for key in set().union(*owners.values()) - owners.get(owner, set()):
        del section[key]


@functools.cache
def same_machine() -> bool:
    """Whether numbers must agree to the bit."""
    return machine() == str(EXPECTED["machine"])


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the set. Its runs name their data relative to it: commands run within."""
    place = tmp_path_factory.mktemp("golden") / "set"
    shutil.copytree(GOLDEN, place)
    return place


@pytest.fixture(autouse=True)
def _within(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)


@pytest.mark.parametrize("file", RESOLVED, ids=lambda file: file.name.partition(".")[0])
def test_a_configuration_means_what_it_meant(file: Path, workplace: Path) -> None:
    expected = json.loads(file.read_text())
    name = file.name.removesuffix(".resolved.json")
    while not (path := Path("configs") / f"{name}.yaml").is_file():
        name = name.rpartition("-")[0]  # the same file with overrides
    found = load_config(path, expected["overrides"])
    assert effective(resolved(found)) == effective(expected["config"])


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_prepared_data_are_read(name: str) -> None:
    prepared = open_prepared(Path("prepared") / name)
    assert prepared.vectors().shape == (len(prepared.vocabulary.words), 8)
    assert {split: len(prepared.split(split)) for split in ("train", "dev", "test")} == {
        "train": 40,
        "dev": 16,
        "test": 8,
    }
    assert contents(prepared.folder) == EXPECTED["prepared"][name]


PACKED = {"resan", "hardkuma-disan"}
"""Encoders that padded sentences in b9a4141, and do not now: they add the same numbers in another
order, so that bits differ on any machine."""
ONE_GATE = "hardkuma-disan"
"""Its policy has one gate for both roles, whose gradient was wrong in b9a4141: see `union`."""


@pytest.mark.parametrize("name", EXPECTED["runs"])
def test_a_stopped_run_is_used_and_gone_on_with(name: str) -> None:
    run, expected = Path("runs") / name, EXPECTED["runs"][name]
    exact = same_machine() and name not in PACKED
    assert not (run / "report.json").exists()
    stopped, finished = expected["stopped"], expected["finished"]
    assert_numbers(scores(run), stopped["scores"], exact=exact)
    found = predictions(run, TEXTS[expected["data"]])
    assert found["exact"] == stopped["predictions"]["exact"]
    assert_numbers(found["numbers"], stopped["predictions"]["numbers"], exact=exact)

    result = CliRunner().invoke(app, ["train", "--resume", str(run), "--json"])
    assert result.exit_code == 0, result.output
    if name != ONE_GATE:
        assert_numbers(final_report(run), finished["report"], exact=exact)
    assert json.loads(result.stdout)["steps"] == finished["report"]["steps"]
    if name == ONE_GATE:
        return
    tensors = final_tensors(run)
    last = finished["tensors"]["latest"]
    assert_numbers(tensors["latest"]["values"], last["values"], exact=exact)
    if exact:
        assert tensors["latest"]["tensors"] == last["tensors"]
        assert tensors == finished["tensors"]
    assert tensors["latest"]["tensors"].keys() == last["tensors"].keys()


@pytest.mark.parametrize("name", EXPECTED["exports"])
def test_an_export_predicts_as_it_did(name: str) -> None:
    expected, exact = EXPECTED["exports"][name], same_machine() and name not in PACKED
    found = predictions(Path("exports") / name, TEXTS[EXPECTED["runs"][name]["data"]])
    assert found["exact"] == expected["exact"]
    assert_numbers(found["numbers"], expected["numbers"], exact=exact)
