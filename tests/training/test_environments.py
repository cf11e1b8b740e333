"""The environment pays what a run trains on: for every shipped configuration."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tiny_transformers
import torch

from rss_rl import envs
from rss_rl.api.prepare import prepare
from rss_rl.config import RunConfig, load_config, parse_section, with_folders
from rss_rl.data.label_weights import FOLDS
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError, DataError
from rss_rl.models.inputs import tensor_batch
from rss_rl.ops.losses import role_cost
from rss_rl.packaged import find_config, packaged_configs
from rss_rl.reading.models import Models, build_models
from rss_rl.rollouts.rollout import Job, Rollout
from rss_rl.rollouts.sampler import Sampler, run_task
from rss_rl.rollouts.snapshot import Publisher
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.evaluation import evaluate
from rss_rl.training.run import train
from rss_rl.types import Array, Batch, LabelSpec

CLASSES = LabelSpec("classes", ("no", "maybe", "yes"))
TASKS = {
    "planted": (CLASSES, 1),
    "cr": (CLASSES, 1),
    "own": (CLASSES, 1),
    "product-reviews": (CLASSES, 1),
    "lambada": (LabelSpec("candidate"), 2),
    "eraser-movies": (CLASSES, 1),
    "yelp-hat": (CLASSES, 1),
    "trec": (CLASSES, 1),
    "sick-relatedness": (LabelSpec("score", low=1.0, high=5.0), 2),
    "sick-entailment": (CLASSES, 2),
    "snli": (CLASSES, 2),
    "squad": (LabelSpec("sentence"), 2),
    "trecqa": (CLASSES, 2),
    "cnn": (LabelSpec("candidate"), 2),
}
"""Labels and sentence slots by the name of the prepared data."""
SIZE, WORDS, CHOICES = 6, 30, 3
STATE = 8
"""Hidden size of the small transformer."""
SMALL = {
    "model.hidden": 4,
    "model.head_hidden": 4,
    "model.attention": "eager",
    "model.encoder.options.block_length": 2,
    "policy.options.hidden": 4,
    "sampler.precision": "float32",  # the environment rounds as samplers that compute so
}


class Drawn:
    """An ExampleSource of random token ids, of any task; each sentence has its own length."""

    def __init__(self, labels: LabelSpec, sentences: int) -> None:
        self.labels, self.sentences = labels, sentences
        draw = np.random.default_rng(0)
        self._lengths = draw.integers(CHOICES, 9, (SIZE, sentences))
        self._tokens = draw.integers(2, WORDS, (SIZE, sentences, 9))
        low = 1 if labels.kind == "score" else 0
        self._labels = draw.integers(low, low + CHOICES, SIZE)

    def __len__(self) -> int:
        return SIZE

    def lengths(self) -> Array:
        return self._lengths

    def batch(self, rows: Sequence[int] | Array) -> Batch:
        index = np.asarray(rows, dtype=np.int64)
        tokens, valid = [], []
        for slot in range(self.sentences):
            real = np.arange(self._lengths[index, slot].max()) < self._lengths[index, slot][:, None]
            tokens.append(np.where(real, self._tokens[index, slot, : real.shape[1]], 0))
            valid.append(real)
        marks = None
        if self.labels.chooses:  # runs of tokens, CHOICES of them in each example
            places = np.arange(valid[0].shape[1]) * CHOICES // self._lengths[index, :1]
            marks = np.where(valid[0], places, -1)
        kind = np.float32 if self.labels.kind == "score" else np.int64
        labels = self._labels[index].astype(kind)
        states = tuple(np.ones((*real.shape, STATE), np.float32) for real in valid)
        folds = None if self.labels.chooses else 1 + index % FOLDS
        return Batch(
            index, tuple(tokens), tuple(valid), labels, marks=marks, states=states, folds=folds
        )


def actions(env: Any, selections: Sequence[Array]) -> Array:
    """Selections S x bool [B, 2, N_s] as the actions [B, S * R * max_len] of an environment."""
    space = getattr(env, "single_action_space", env.action_space)
    longest = env.unwrapped._spaces._width
    bits = space.shape[0] // (longest * len(selections))
    padded = [np.pad(s, ((0, 0), (0, 0), (0, longest - s.shape[-1]))) for s in selections]
    return np.concatenate([p[:, :bits].reshape(len(p), -1) for p in padded], 1).astype(np.int8)


def paid_for(env: Any, selections: Sequence[Array]) -> Array:
    """What a single environment pays for a selection of each of the first rows, float64 [B]."""
    paid = []
    for row, action in enumerate(actions(env, selections)):
        env.reset(options={"row": row})
        paid.append(env.step(action)[1])
    return np.array(paid)


def rollout_of(config: RunConfig, models: Models, examples: Any, words: Sequence[str]) -> Rollout:
    sampler = Sampler(config, models, examples, words)
    sampler.load(Publisher(models).publish(0))
    job = Job(0, 0, np.arange(SIZE), selections=2, scored=True, thresholded=False)
    return sampler.sample(job)


def charged(rollout: Rollout, examples: Any, price: tuple[float, float]) -> Array:
    """What an update charges a policy that is sure of each of these selections, [K, B]."""
    paid = np.zeros(rollout.log_prob.shape[:2])
    for slot, valid in enumerate(examples.batch(rollout.rows).valid):
        mask = torch.from_numpy(valid)
        for k, b in np.ndindex(paid.shape):
            sure = torch.from_numpy(rollout.selections[slot][k, b]).double()[None]
            paid[k, b] += float(role_cost(sure, mask[b : b + 1], price))
    return paid


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small one, in the place of those that configurations name."""
    return tiny_transformers.save(tmp_path_factory.mktemp("tiny") / "bert", classes=3)


def small_config(file: Path) -> RunConfig:
    """With those of the small settings that its components have."""
    settings: list[str] = []
    for key, value in SMALL.items():
        with suppress(ConfigError):
            load_config(file, [*settings, f"{key}={value}"])
            settings.append(f"{key}={value}")
    return load_config(file, settings)


@pytest.mark.parametrize("name", packaged_configs())
def test_the_environment_pays_what_a_run_trains_on(name: str, transformer: Path) -> None:
    """Term by term; under a share, lambda is what the update charges.

    A run that learns through gates has no sampler: its environment pays the hard reward of the dev
    evaluation.
    """
    config = small_config(find_config(name))
    config = with_folders(config, lambda _: str(transformer))
    labels, sentences = TASKS[Path(config.data).name]
    vectors = np.random.default_rng(1).normal(size=(WORDS, 5)).astype(np.float32)
    words = ["<pad>", "<unk>", *(f"w{number}" for number in range(2, WORDS))]
    models = build_models(config, labels, sentences, vectors, WORDS, words)
    models.classifier.embedding.hold_out(vectors[None, :, :2].repeat(FOLDS, 0))
    examples = Drawn(labels, sentences)
    price = None if config.reward.target_share is None else (0.3, -0.1)
    task = run_task(config, models, examples, words)
    rollout = rollout_of(config, models, examples, words)
    env = gym.make_vec(envs.ENV_ID, num_envs=SIZE, task=replace(task, price=price))
    costs = {name: each.sum(-1) for name, each in rollout.terms.costs.items()}  # [K, B]
    if price is not None:
        assert not costs["sparsity_cost"].any()
        costs["sparsity_cost"] = charged(rollout, examples, price)
    total = rollout.terms.score - sum(costs.values())  # [K, B]
    for k in range(2):
        _, paid, info = stepped(env, [s[k] for s in rollout.selections])
        np.testing.assert_allclose(paid, total[k], atol=1e-5)
        for term, scores in rollout.terms.scores.items():
            np.testing.assert_allclose(info[term], scores[k], atol=1e-5)
        for term, of_term in costs.items():
            np.testing.assert_allclose(info[term], of_term[k], atol=1e-5)
    assert np.ptp(total) > 0
    if config.reward.model.can("classifier"):
        read = tensor_batch(examples.batch(range(SIZE)), torch.device("cpu"))
        chosen = [torch.from_numpy(s[0]) for s in rollout.selections]
        with torch.no_grad(), models.evaluating():
            logits = models.classifier(read.tokens, read.valid, chosen, read.marks)
        losses = models.classifier.losses(logits, read.labels)
        np.testing.assert_allclose(rollout.terms.scores["log_likelihood"][0], -losses, atol=1e-5)
    if price is not None:
        assert np.abs(costs["sparsity_cost"]).max() > 0
    if config.policy_update.can("gates"):
        hard = gym.make_vec(envs.ENV_ID, num_envs=SIZE, task=task)
        everything = [np.repeat(v[:, None], 2, axis=1) for v in examples.batch(range(SIZE)).valid]
        _, paid, info = stepped(hard, everything)
        device = torch.device("cpu")
        scores = evaluate(models, examples, config, ["all"], device=device, task=task)["all"]
        assert scores["reward"] == pytest.approx(paid.mean(), abs=1e-5)
        assert scores["kept"] == info["kept"].mean() == 1


def stepped(env: Any, selections: Sequence[Array]) -> tuple[Any, Array, dict[str, Array]]:
    """Observation, rewards and final info of a step of all rows."""
    env.reset(options={"rows": np.arange(len(selections[0]))})
    observation, paid, _, _, info = env.step(actions(env, selections))
    return observation, paid, info["final_info"]


def test_of_a_configuration_and_of_a_run(
    tiny_config: RunConfig, tiny: Prepared, tmp_path: Path
) -> None:
    reward = tiny_config.reward.model_copy(update={"target_share": 0.5, "coherence_cost": 0.4})
    alone = tiny_config.evaluation.model_copy(update={"all_tokens": False})
    config = tiny_config.model_copy(
        update={"reward": reward, "evaluation": alone, "phases": tiny_config.phases}
    )
    dev = tiny.split("dev")
    batch = dev.batch(range(5))
    draw = np.random.default_rng(2)
    selections = [draw.random((5, 2, v.shape[1])) < 0.5 for v in batch.valid]
    fresh = paid_for(gym.make(envs.ENV_ID, run=config, split="dev"), selections)
    run = tmp_path / "run"
    for _ in train(config, run):
        pass
    env = gym.make(envs.ENV_ID, run=run, split="dev")
    trained = paid_for(env, selections)
    assert np.abs(fresh - trained).min() > 1e-4
    batched = gym.make_vec(envs.ENV_ID, num_envs=5, run=str(run), split="dev")
    _, paid, info = stepped(batched, selections)
    np.testing.assert_allclose(paid, trained, atol=1e-5)
    roles = load_checkpoint(run, "best").state["share"]["roles"]
    pairs = list(zip(real(selections, batch), batch.valid, strict=True))
    shares = [sum(s[:, role].sum(-1) / v.sum(1) for s, v in pairs) for role in range(2)]
    charged = sum(role["cost"] * share for role, share in zip(roles, shares, strict=True))
    np.testing.assert_allclose(info["sparsity_cost"], charged, atol=1e-5)
    assert set(info["prediction"]) <= set(range(len(tiny.labels.names)))
    terms = info["log_likelihood"] - info["sparsity_cost"] - info["coherence_cost"]
    np.testing.assert_allclose(terms, paid, atol=1e-5)


def test_what_contradicts_a_run_is_refused(tiny_config: RunConfig, tmp_path: Path) -> None:
    """A misspelt split would be the training rows, and data prepared again have other words."""
    out = tmp_path / "rows"

    def prepared(*words: str) -> None:
        rows = [{"text": f"{word} fox {n}", "label": word} for n in range(10) for word in words]
        prepare(rows, out=out, text="text", label="label", dim=4, force=True)

    prepared("red", "blue")
    run = tmp_path / "run"
    list(train(tiny_config.model_copy(update={"data": str(out)}), run))
    for given, fragment in (
        ({"spilt": "test"}, r"'spilt' is not taken beside run.*did you mean 'split'"),
        ({"sparsity_cost": 0.5}, "'sparsity_cost' is not taken beside run"),
    ):
        with pytest.raises(ConfigError, match=fragment):
            gym.make(envs.ENV_ID, run=run, **given)
    task = gym.make(envs.ENV_ID, run=run).unwrapped.task
    for given in ({"run": run}, {"max_len": 9}):
        with pytest.raises(ConfigError, match=r"is not taken beside task"):
            gym.make(envs.ENV_ID, task=task, **given)
    prepared("red", "green")
    with pytest.raises(DataError, match="not those the run was trained on"):
        gym.make(envs.ENV_ID, run=run)


def real(selections: Sequence[Array], batch: Batch) -> list[Array]:
    """Without the bits on padding."""
    return [s & v[:, None] for s, v in zip(selections, batch.valid, strict=True)]


def test_an_agent_of_one_split_acts_on_another(tiny_config: RunConfig, tmp_path: Path) -> None:
    """The padded length belongs to the data, and a policy with one bit a word acts by one."""
    rows = {
        name: [{"text": f"{word} fox " * length, "label": word} for word in ("red", "blue")] * 5
        for name, length in (("train", 6), ("dev", 3), ("test", 1))
    }
    out, files = tmp_path / "rows", {name: rows[name] for name in ("dev", "test")}
    prepare(rows["train"], out=out, text="text", label="label", dim=4, **files)
    config = tiny_config.model_copy(update={"data": str(out)})
    made = [gym.make(envs.ENV_ID, run=config, split=split) for split in rows]
    assert len({str(env.observation_space) for env in made}) == 1
    assert {env.observation_space["valid_0"].shape for env in made} == {(12,)}
    assert {env.action_space.shape for env in made} == {(24,)}
    tree = {"name": "rss", "options": {"shared": True}}
    policy = parse_section(type(config.policy), tree, where="test")
    one = config.model_copy(update={"policy": policy})
    assert gym.make(envs.ENV_ID, run=one).action_space.shape == (12,)
