"""Configurations: strict, with errors that name file, key and the nearest known key."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from rss_rl.config import RunConfig, load_config, parse_config
from rss_rl.errors import ConfigError

MINIMAL = """
data: prepared/some
phases:
  - {name: warm-up, supervised: true, selection: all, steps: 10}
  - {name: co-train, supervised: true, policy: true, patience: 3}
"""


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    path = tmp_path / "minimal.yaml"
    path.write_text(MINIMAL, encoding="utf-8")
    return path


def test_defaults_and_given_values(minimal: Path) -> None:
    config = load_config(minimal)
    assert config.data == "prepared/some"
    assert config.phases[0].selection == "all"
    assert config.phases[1].patience == 3
    assert config.policy_update.options["baseline"] == "leave-one-out"
    assert config.policy.options["hidden"] == 300
    assert (config.sampler.selections, config.reward.penalty) == (4, "sum")


def test_a_configuration_is_frozen_and_survives_a_round_trip(minimal: Path) -> None:
    config = load_config(minimal, ["learner.policy.betas=[0.8, 0.99]", "seed=7"])
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 1  # type: ignore[misc]
    again = parse_config(config.model_dump(mode="json"), where="resolved")
    assert again == config
    assert isinstance(again, RunConfig)
    written = yaml.safe_dump(config.model_dump(mode="json"))
    assert parse_config(yaml.safe_load(written), where="resolved") == config


POLICY_ALONE = "phases=[{name: a, policy: true, steps: 3}]"
REFUSED = [
    ("modle.hidden=1", "or a KEY=VALUE setting: unknown key 'modle'; did you mean 'model'?"),
    ("model.hiden=1", "unknown key 'model.hiden'; did you mean 'hidden'?"),
    ("learner.policy.lerning_rate=1", "lerning_rate'; did you mean 'learning_rate'?"),
    ("reward.zzz=1", "unknown key 'reward.zzz'; known keys: model, sparsity_cost, penalty"),
    ("phases.0.stepz=3", "unknown key 'phases.0.stepz'; did you mean 'steps'?"),
    ("policy.nam=rss", "unknown key 'policy.nam'; did you mean 'name'"),
    ("seed", "cannot read the override 'seed'"),
    ("data.x.y=3", "data.x.y=3: 'data' is a value, not a section"),
    ("phases.2.steps=3", "phases.2.steps=3: no item 2 in a list of 2"),
    ("phases.first.steps=3", "no item first in a list of 2 named warm-up, co-train"),
    ("model=[1", "the value is not valid YAML"),
    ("model={hidden: 3, hidden: 4}", "key 'hidden' is given twice"),
    ("seed=one", "seed: Input should be a valid integer"),
    ("model.hidden=0", "model.hidden: Input should be greater than or equal to 1"),
    ("evaluation.all_tokens='yes'", "evaluation.all_tokens: Input should be a valid bool"),
    ("learner.supervised.learning_rate=.inf", "learning_rate: Input should be a finite number"),
    ("learner.policy.betas=[0.9, 1.5]", "learner.policy.betas.1: Input should be less than 1"),
    ("model=null", "model: Input should be a valid dictionary or instance of ModelConfig"),
    ("phases=[]", "phases: Tuple should have at least 1 item"),
    ("model.encoder=lstm", "unknown encoder 'lstm'; did you mean 'bilstm'"),
    ("policy=iterativ", "policy.name: unknown policy 'iterativ'; did you mean 'iterative'"),
    ("policy.options.hiden=3", "unknown option 'hiden'; did you mean 'hidden'"),
    ("policy.options.hidden=0", "option hidden: Input should be greater than or equal to 1"),
    ("policy=top-k", "option share: Field required"),
    ("policy={name: smooth, options: {width: 20.0}}", "less than 16"),
    ("learner.policy_update=reinfoce", "learner.policy_update.name: unknown policy update"),
    ("learner.policy_update={name: ppo-clip, options: {ratio: 0.1}}", "unknown option 'ratio'"),
    ("sampler.selections=1", "sampler.selections must be >= 2"),
    ("batch_size=1", "shards may not exceed batch_size"),
    ("learner.supervised.decay_updates=1", "decay_updates=1 ends learning before"),
    ("phases=[{name: a, steps: 3}]", "phases.0: nothing learns"),
    ("phases=[{name: a, policy: true}]", "phases.0: the phase never ends"),
    ("phases.1.selection=all", "selection must be 'sampled'"),
    ("phases.0.mixed_share=0.5", "mixed_share replaces sampled selections"),
    ("phases.0.alternate_every=2", "alternate_every needs both"),
    ("policy=select-all", "'select-all' has nothing to learn"),
    ("policy=iterative + learner.policy_update=pathwise", "needs a policy with gates"),
    ("policy=bernoulli + reward.target_share=0.3", "nothing to learn"),
    (
        "policy={name: top-k, options: {share: 0.4}} + reward.target_share=0.3",
        "does not declare that it keeps those",
    ),
    ("reward.share_schedule=0.5", "leads to target_share, which is not set"),
    ("policy.layers=4", "layers and window are those of"),
    ("sampler.resources={GPU: 1}", "GPU=1 is not a custom resource"),
    ("sampler.gpus=0.5", "set sampler.backend=ray"),
    ("sampler.gpus=2 + sampler.backend=ray", "less than or equal to 1"),
    ("learner.actors=2", "learner.actors needs sampler.backend=ray"),
    ("learner.actors=2 + learner.device=cuda", "set learner.gpus=1"),
    ("learner.gpus=1", "it would lie idle"),
    ("learner.actors=2 + learner.device=cuda + learner.gpus=0.5", "NCCL refuses two learners"),
]
"""Overrides, one or several joined by " + ", and what is said of them."""


@pytest.mark.parametrize(("overrides", "said"), REFUSED)
def test_what_cannot_be_is_refused_with_key_and_remedy(
    minimal: Path, overrides: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(minimal, overrides.split(" + "))
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["1e-3", "+1E-3", ".1e-2"])
def test_numbers_with_an_exponent_are_numbers(minimal: Path, text: str) -> None:
    # YAML 1.1 reads 1e-3 as text.
    assert (
        load_config(minimal, [f"learner.policy.learning_rate={text}"]).learner.policy.learning_rate
        == 1e-3
    )
    minimal.write_text(MINIMAL + f"reward: {{sparsity_cost: {text}}}\n", encoding="utf-8")
    assert load_config(minimal).reward.sparsity_cost == 1e-3


def test_overrides_reach_sections_phases_and_new_keys(minimal: Path) -> None:
    config = load_config(
        minimal,
        [
            "phases.0.steps=5",
            "phases.1={name: frozen, policy: true, steps: 2}",
            "model.encoder=mean",
            "learner.supervised.clip_norm=null",
            "data=a=b",
        ],
    )
    assert config.phases[0].steps == 5
    assert (config.phases[1].name, config.phases[1].supervised) == ("frozen", False)
    assert config.model.encoder.name == "mean"
    assert config.learner.supervised.clip_norm is None
    assert config.data == "a=b"


def test_an_override_names_an_item_of_a_list(minimal: Path) -> None:
    phases = load_config(minimal, ["phases.co-train.steps=7", "phases.warm-up.name=first"]).phases
    assert [(phase.name, phase.steps) for phase in phases] == [("first", 10), ("co-train", 7)]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("data: [1", "not valid YAML"),
        ("- a\n- b\n", "a mapping of keys to values"),
        ("", "a mapping of keys to values"),
        (MINIMAL + "seed: 1\nseed: 2\n", "key 'seed' is given twice"),
    ],
)
def test_files_that_cannot_be_used(minimal: Path, content: str, wanted: str) -> None:
    minimal.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(minimal)
    assert wanted in str(caught.value)
    assert str(minimal) in str(caught.value)


def test_undecodable_and_missing_files(minimal: Path) -> None:
    minimal.write_bytes(b"data: \xff\xfe\n")
    with pytest.raises(ConfigError, match="cannot read the configuration: .*utf-8"):
        load_config(minimal)
    with pytest.raises(ConfigError, match="cannot read the configuration") as caught:
        load_config(minimal.parent / "missing.yaml")
    assert "missing.yaml" in str(caught.value)
