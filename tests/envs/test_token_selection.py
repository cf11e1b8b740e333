"""The single environment: Gymnasium's checker, seeds, actions, info, rendering, pickling."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence

from rss_rl import envs
from rss_rl.config import RewardConfig
from rss_rl.envs.task import SelectionTask
from rss_rl.errors import ConfigError


def _make(examples: Any, reward_model: Any, **settings: Any) -> Any:
    return gym.make(envs.ENV_ID, examples=examples, reward_model=reward_model, **settings)


def _flat(selections: Any, max_len: int) -> Any:
    """The action that stands for S x [2, N_s]: sentence, role, token."""
    bits = np.zeros((len(selections), 2, max_len), np.int8)
    for s, selection in enumerate(selections):
        bits[s, :, : selection.shape[1]] = selection
    return bits.reshape(-1)


@pytest.mark.parametrize("render_mode", [None, "ansi"])
def test_gymnasium_finds_no_fault(examples: Any, reward_model: Any, render_mode: Any) -> None:
    env = _make(examples, reward_model, render_mode=render_mode)
    check_env(env.unwrapped)  # warnings are errors here


def test_equal_seeds_agree_and_others_differ(examples: Any, reward_model: Any) -> None:
    def rows(seed: int) -> list[int]:
        env = _make(examples, reward_model)
        drawn = [env.reset(seed=seed)[1]["row"]]
        for _ in range(20):
            drawn.append(env.reset()[1]["row"])
        return drawn

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)
    assert set(rows(1)) <= set(range(len(examples)))
    assert len(set(rows(1))) > 1


def test_the_observation_is_the_text_and_not_the_label(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model)
    observation, info = env.reset(options={"row": 3})
    batch = examples.batch([3])
    names = {f"{part}_{s}" for s in range(examples.sentences) for part in ("tokens", "valid")}
    assert set(observation) == names
    assert info == {"row": 3}
    for s in range(examples.sentences):
        n = batch.tokens[s].shape[1]
        np.testing.assert_array_equal(observation[f"tokens_{s}"][:n], batch.tokens[s][0])
        np.testing.assert_array_equal(observation[f"valid_{s}"][:n], batch.valid[s][0])
        assert not observation[f"tokens_{s}"][n:].any()
        assert not observation[f"valid_{s}"][n:].any()


def test_a_step_is_what_the_core_says(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model, sparsity_cost=0.3, penalty="product", max_len=9)
    draw, row = np.random.default_rng(5), 4
    batch = examples.batch([row])
    selections = [draw.random((2, v.shape[1])) < 0.5 for v in batch.valid]
    env.reset(options={"row": row})
    observation, reward, terminated, truncated, info = env.step(_flat(selections, 9))
    config = RewardConfig(sparsity_cost=0.3, penalty="product")
    parts = SelectionTask(examples, reward_model, config).step(batch, [s[None] for s in selections])
    assert reward == pytest.approx(float(parts.total[0]), abs=1e-6)
    assert (terminated, truncated) == (True, False)
    np.testing.assert_array_equal(info["by_sentence"], parts.by_sentence[0])
    assert reward == pytest.approx(info["score"] - info["sparsity_cost"], abs=1e-6)
    size = sum(v.sum() for v in batch.valid)
    assert info["heads_kept"] == pytest.approx(sum(s[0].sum() for s in selections) / size)
    assert info["dependents_kept"] == pytest.approx(sum(s[1].sum() for s in selections) / size)
    assert info["kept"] == pytest.approx(sum(s.any(0).sum() for s in selections) / size)
    assert info["row"] == row
    assert observation in env.observation_space


def test_an_episode_is_one_step(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model).unwrapped
    with pytest.raises(ResetNeeded):
        env.step(env.action_space.sample())
    env.reset(seed=0)
    env.step(env.action_space.sample())
    with pytest.raises(ResetNeeded):
        env.step(env.action_space.sample())


def test_bad_actions_rows_and_settings_are_refused(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model).unwrapped
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="must be"):
        env.step(np.zeros(3, np.int8))
    with pytest.raises(InvalidAction, match="0 or 1"):
        env.step(np.full(env.action_space.shape, 2))
    env.step(env.action_space.sample())  # a refused action does not end the episode
    for row in (-1, len(examples)):
        with pytest.raises(ConfigError, match=f"row {row} does not exist"):
            env.reset(options={"row": row})
    for row in (2.7, True, "a", [1, 2]):
        with pytest.raises(ConfigError, match="is no row"):
            env.reset(options={"row": row})
    for learnt in ({"target_share": 0.3}, {"target_share": 0.3, "sparsity_cost": 0.5}):
        with pytest.raises(ConfigError, match="'target_share' needs a learner"):
            _make(examples, reward_model, **learnt)
    with pytest.raises(ConfigError, match="something that scores selections"):
        _make(examples, None)
    with pytest.raises(ConfigError, match="longest sentence has 6 tokens"):
        _make(examples, reward_model, max_len=5)
    with pytest.raises(ConfigError, match="either `run`, `examples` or `prepared`"):
        gym.make(envs.ENV_ID, reward_model=reward_model)


def test_it_renders_a_line_a_sentence_with_marks(pairs: Any, reward_model: Any) -> None:
    env = _make(pairs, reward_model, render_mode="ansi")
    env.reset(options={"row": 0})
    plain = [list(sentence) for sentence in pairs.words(0)]
    assert env.render() == "\n".join(" ".join(words) for words in plain)
    selections = np.zeros((2, 2, 6), bool)
    selections[0, 0, 1] = selections[0, 1, 2] = True
    selections[1, :, 0] = True
    env.step(selections.reshape(-1).astype(np.int8))
    plain[0][1] = f"[{plain[0][1]}]h"
    plain[0][2] = f"[{plain[0][2]}]d"
    plain[1][0] = f"[{plain[1][0]}]hd"
    assert env.render() == "\n".join(" ".join(words) for words in plain)


def test_a_pickled_environment_goes_on_alike(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model, render_mode="ansi").unwrapped
    env.reset(seed=3)
    twin = pickle.loads(pickle.dumps(env))
    action = env.action_space.sample()
    for _ in range(3):
        assert data_equivalence(env.step(action), twin.step(action), exact=True)
        assert env.render() == twin.render()
        assert data_equivalence(env.reset(), twin.reset(), exact=True)


def test_one_bit_a_word_stands_for_both_roles(examples: Any, reward_model: Any) -> None:
    two, one = (_make(examples, reward_model, bits=bits).unwrapped for bits in (2, 1))
    assert 2 * one.action_space.shape[0] == two.action_space.shape[0]
    action = one.action_space.sample().reshape(examples.sentences, 1, -1)
    paid = []
    for env, bits in ((one, action), (two, np.repeat(action, 2, axis=1))):
        env.reset(options={"row": 2})
        paid.append(env.step(bits.reshape(-1)))
    assert data_equivalence(paid[0], paid[1], exact=True)
    assert paid[0][4]["heads_kept"] == paid[0][4]["dependents_kept"]


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"reward_model": len, "sparsity_cost": -0.1}, "sparsity_cost: .*greater"),
        ({"reward_model": len, "sparsity_cost": float("nan")}, "sparsity_cost: .*finite"),
        ({"reward_model": len, "penalty": "produkt"}, "penalty: .*'product'"),
        ({"reward_model": len, "sparsity": 1.0}, "did you mean 'sparsity_cost'"),
    ],
)
def test_a_reward_that_cannot_be_is_refused(
    examples: Any, settings: dict[str, Any], fragment: str
) -> None:
    with pytest.raises(ConfigError, match=fragment):
        gym.make(envs.ENV_ID, examples=examples, **settings)
