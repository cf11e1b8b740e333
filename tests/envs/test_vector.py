"""The batched environment: equal to single ones on the same rows, in every autoreset mode."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from rss_rl import envs
from rss_rl.envs.vector import TokenSelectionVectorEnv
from rss_rl.errors import ConfigError

PARTS = ("score", "sparsity_cost", "by_sentence", "heads_kept", "dependents_kept", "kept")
MODES = [mode.value for mode in AutoresetMode]


def _make(examples: Any, reward_model: Any, num_envs: int = 5, **settings: Any) -> Any:
    return gym.make_vec(
        envs.ENV_ID, num_envs, examples=examples, reward_model=reward_model, **settings
    )


def _alone(examples: Any, reward_model: Any, row: int, action: Any) -> Any:
    env = gym.make(envs.ENV_ID, examples=examples, reward_model=reward_model)
    env.reset(options={"row": int(row)})
    return env.step(action)


def test_make_vec_prefers_the_native_form(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model)
    assert isinstance(env.unwrapped, TokenSelectionVectorEnv)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_a_batched_step_equals_single_ones(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model)
    rows = np.array([6, 0, 3, 3, 1])
    first, info = env.reset(seed=1, options={"rows": rows})
    np.testing.assert_array_equal(info["row"], rows)
    assert first in env.observation_space
    env.action_space.seed(0)
    actions = env.action_space.sample()
    observation, rewards, terminated, truncated, infos = env.step(actions)
    assert reward_model.calls == [5]
    assert observation in env.observation_space
    assert rewards.dtype == np.float64
    assert terminated.all()
    assert not truncated.any()
    for i, row in enumerate(rows):
        last, reward, _, _, parts = _alone(examples, reward_model, row, actions[i])
        assert rewards[i] == pytest.approx(reward, abs=1e-6)
        assert data_equivalence(infos["final_obs"][i], last, exact=True)
        assert infos["final_info"]["row"][i] == row
        for name in PARTS:
            np.testing.assert_array_equal(infos["final_info"][name][i], parts[name])


@pytest.mark.parametrize("mode", MODES)
def test_the_modes_reset_when_they_should(examples: Any, reward_model: Any, mode: str) -> None:
    env = _make(examples, reward_model, autoreset_mode=mode)
    env.reset(seed=1)
    env.action_space.seed(0)
    scored = []
    for _ in range(4):
        before = len(reward_model.calls)
        _, rewards, terminated, _, infos = env.step(env.action_space.sample())
        scored.append(len(reward_model.calls) - before)
        assert (rewards[~terminated] == 0).all()
        assert infos["_row"].all()
        if mode == "Disabled":
            with pytest.raises(ResetNeeded):
                env.step(env.action_space.sample())
            env.reset(options={"reset_mask": np.ones(5, bool)})
    assert scored == ([1, 0, 1, 0] if mode == "NextStep" else [1, 1, 1, 1])


@pytest.mark.parametrize("mode", MODES)
def test_observations_are_the_rows_of_the_next_step(
    examples: Any, reward_model: Any, mode: str
) -> None:
    env = _make(examples, reward_model, autoreset_mode=mode)
    observation, info = env.reset(seed=2)
    seen = set()
    for _ in range(4):
        seen.add(tuple(info["row"]))
        batch = examples.batch(info["row"])
        n = batch.tokens[0].shape[1]
        np.testing.assert_array_equal(observation["tokens_0"][:, :n], batch.tokens[0])
        actions = env.action_space.sample()
        presented = info["row"]
        observation, rewards, terminated, _, info = env.step(actions)
        for i in np.flatnonzero(terminated):
            alone = _alone(examples, reward_model, presented[i], actions[i])
            assert rewards[i] == pytest.approx(alone[1], abs=1e-6)
        if mode == "Disabled":
            np.testing.assert_array_equal(info["row"], presented)
            observation, info = env.reset(options={"reset_mask": terminated})
    assert len(seen) == (2 if mode == "NextStep" else 4)


def test_a_reset_mask_leaves_the_others_alone(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model, autoreset_mode="NextStep")
    _, info = env.reset(seed=4)
    rows = info["row"]
    env.step(env.action_space.sample())
    mask = np.array([True, False, True, False, False])
    _, info = env.reset(options={"reset_mask": mask, "rows": np.array([1, 1, 2, 2, 2])})
    np.testing.assert_array_equal(info["row"], np.where(mask, [1, 1, 2, 2, 2], rows))
    _, rewards, terminated, _, infos = env.step(np.ones_like(env.action_space.sample()))
    np.testing.assert_array_equal(terminated, mask)
    np.testing.assert_array_equal(infos["_kept"], mask)
    assert reward_model.calls == [5, 2]
    assert not rewards[~mask].any()
    assert rewards[mask].all()


@pytest.mark.parametrize("mode", MODES)
def test_equal_seeds_agree_and_others_differ(examples: Any, reward_model: Any, mode: str) -> None:
    def trajectory(seed: int) -> list[Any]:
        env = _make(examples, reward_model, autoreset_mode=mode)
        seen = [env.reset(seed=seed)]
        env.action_space.seed(9)
        for _ in range(4):
            seen.append(env.step(env.action_space.sample()))
            if mode == "Disabled":
                seen.append(env.reset())
        return seen

    assert data_equivalence(tuple(trajectory(1)), tuple(trajectory(1)), exact=True)
    assert not data_equivalence(tuple(trajectory(1)), tuple(trajectory(2)), exact=True)


def test_nothing_returned_is_used_again(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model)
    first, _ = env.reset(seed=1)
    kept = {name: values.copy() for name, values in first.items()}
    second, *_ = env.step(env.action_space.sample())
    for name, values in second.items():
        assert not np.shares_memory(values, first[name])
        values[:] = 0
    env.step(env.action_space.sample())
    assert data_equivalence(first, kept, exact=True)


def test_it_pickles_and_renders(examples: Any, reward_model: Any) -> None:
    env = _make(examples, reward_model, autoreset_mode="Disabled", render_mode="ansi").unwrapped
    env.reset(seed=3)
    twin = pickle.loads(pickle.dumps(env))
    actions = np.ones_like(env.action_space.sample())
    assert data_equivalence(env.step(actions), twin.step(actions), exact=True)
    assert env.render() == twin.render()
    assert all(line.count("]hd") for line in env.render())


def test_bad_input_is_refused(examples: Any, reward_model: Any) -> None:
    with pytest.raises(ConfigError, match="did you mean 'SameStep'"):
        _make(examples, reward_model, autoreset_mode="Samestep")
    env = _make(examples, reward_model)
    with pytest.raises(ResetNeeded):
        env.step(env.action_space.sample())
    with pytest.raises(ResetNeeded, match="leave out reset_mask"):
        env.reset(options={"reset_mask": np.array([True, False, False, False, False])})
    with pytest.raises(ConfigError, match="reset_mask is int64"):
        env.reset(options={"reset_mask": np.ones(5, np.int64)})
    for rows in ([1, 2], [0.5] * 5):
        with pytest.raises(ConfigError, match="Give 5 rows"):
            env.reset(options={"rows": rows})
    for count in (0, 2.5, "3"):
        with pytest.raises(ConfigError, match=f"num_envs: {count!r} episodes"):
            _make(examples, reward_model, num_envs=count)
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="must be"):
        env.step(env.action_space.sample()[:3])
