"""The environment pays what a run trains on: for every shipped configuration."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tiny_transformers

from rss_rl import envs
from rss_rl.config import RunConfig, load_config, with_folders
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.packaged import find_config, packaged_configs
from rss_rl.rollouts.reward import build_reward
from rss_rl.rollouts.rollout import Rollout, SampleJob
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Models, build_models
from rss_rl.training.environments import make_env
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
        return Batch(index, tuple(tokens), tuple(valid), labels, marks=marks, states=states)


def actions(env: Any, selections: Sequence[Array]) -> Array:
    """Selections S x bool [B, 2, N_s] as the actions [B, S * 2 * max_len] of an environment."""
    space = getattr(env, "single_action_space", env.action_space)
    width = space.shape[0] // (2 * len(selections))
    padded = [np.pad(s, ((0, 0), (0, 0), (0, width - s.shape[-1]))) for s in selections]
    return np.concatenate([p.reshape(len(p), -1) for p in padded], axis=1).astype(np.int8)


def paid_for(env: Any, selections: Sequence[Array]) -> Array:
    """What a single environment pays for a selection of each of the first rows, float64 [B]."""
    paid = []
    for row, action in enumerate(actions(env, selections)):
        env.reset(options={"row": row})
        paid.append(env.step(action)[1])
    return np.array(paid)


def rollout_of(
    config: RunConfig, models: Models, examples: Any, words: Sequence[str] | None = None
) -> Rollout:
    sampler = Sampler(config, models, examples, words)
    sampler.load(models.publish(0))
    job = SampleJob(0, 0, np.arange(SIZE), selections=2, scored=True, thresholded=False)
    return sampler.sample(job)


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
def test_the_environment_pays_what_a_sampler_sends(name: str, transformer: Path) -> None:
    config = small_config(find_config(name))
    config = with_folders(config, lambda _: str(transformer))
    labels, sentences = TASKS[Path(config.data).name]
    vectors = np.random.default_rng(1).normal(size=(WORDS, 5)).astype(np.float32)
    words = ["<pad>", "<unk>", *(f"w{number}" for number in range(2, WORDS))]
    models = build_models(config, labels, sentences, vectors, WORDS, words)
    examples = Drawn(labels, sentences)
    rollout = rollout_of(config, models, examples, words)
    reward = build_reward(config, models, examples, words)
    env = gym.make_vec(envs.ENV_ID, num_envs=SIZE, examples=examples, reward=reward)
    total = rollout.score - rollout.cost.sum(-1)  # [K, B]
    for k in range(2):
        env.reset(options={"rows": np.arange(SIZE)})
        paid = env.step(actions(env, [s[k] for s in rollout.selections]))[1]
        np.testing.assert_allclose(paid, total[k], atol=1e-5)
    assert np.ptp(total) > 0


def test_of_a_configuration_and_of_a_run(
    tiny_config: RunConfig, tiny: Prepared, tmp_path: Path
) -> None:
    reward = tiny_config.reward.model_copy(update={"sparsity_cost": 0.7, "coherence_cost": 0.4})
    alone = tiny_config.evaluation.model_copy(update={"all_tokens": False})
    config = tiny_config.model_copy(
        update={"reward": reward, "evaluation": alone, "phases": tiny_config.phases[:1]}
    )
    dev = tiny.split("dev")
    batch = dev.batch(range(5))
    draw = np.random.default_rng(2)
    selections = [draw.random((5, 2, v.shape[1])) < 0.5 for v in batch.valid]
    fresh = paid_for(make_env(config, "dev"), selections)
    for _ in train(config, tmp_path / "run"):
        pass
    env = make_env(tmp_path / "run", "dev")
    trained = paid_for(env, selections)
    assert np.abs(fresh - trained).min() > 1e-3
    batched = make_env(tmp_path / "run", "dev", num_envs=5)
    batched.reset(options={"rows": np.arange(5)})
    _, paid, _, _, info = batched.step(actions(batched, selections))
    np.testing.assert_allclose(paid, trained, atol=1e-5)
    assert {"log_likelihood", "sparsity_cost", "coherence_cost"} <= set(info["final_info"])
