"""What K selections of each example cost: the reward model's call, the policy's, and both."""

from __future__ import annotations

__all__ = ["many_selections"]

from collections.abc import Callable, Iterator

import numpy as np
import torch

from rss_rl.config import ModelConfig, PolicyConfig
from rss_rl.models.build import build_classifier
from rss_rl.policies.build import build_policy
from rss_rl.reward_models.likelihood import ClassifierReward
from rss_rl.types import Array, Batch, LabelSpec
from suite.records import Record, compared
from suite.timing import Settings, Turn, in_turns, seconds_of
from suite.training_step import HIDDEN, SIZES, batches_of

_SAMPLES, _KEPT = 4, 0.3
_CLASSES = LabelSpec("classes", ("no", "maybe", "yes"))
_FORMS = {"unselected kept": True, "faithful": False}


def many_selections(settings: Settings) -> Iterator[Record]:
    """Four selections of SICK-sized pairs beside twice the cost of one."""
    torch.set_num_threads(settings.threads)
    batch = batches_of(SIZES["SICK"], 1)[0]
    count = len(batch.labels)
    examples = Batch(
        np.arange(count),
        tuple(t.numpy() for t in batch.tokens),
        tuple(v.numpy() for v in batch.valid),
        batch.labels.numpy(),
    )
    policy = _policy(examples)
    rewards = {name: _reward(examples, keeps) for name, keeps in _FORMS.items()}
    works = {"policy": policy}
    works |= {f"reward model, {name}": reward for name, reward in rewards.items()}
    works |= {
        f"policy and reward model, {name}": _both(policy, reward)
        for name, reward in rewards.items()
    }
    for name, work in works.items():
        turns: dict[str, Turn] = {
            str(samples): _turn(work, samples, settings) for samples in (1, _SAMPLES)
        }
        found = in_turns(turns, settings.repeats)
        twice = [2 * seconds for seconds in found["1"]]
        yield compared(f"samples/{name}, 4 in twice the time of 1", found["4"], twice, "s")


def _turn(work: Callable[[int], object], samples: int, settings: Settings) -> Turn:
    return lambda: seconds_of(lambda: work(samples), settings.clock, least_s=0.1)


def _both(
    policy: Callable[[int], object], reward: Callable[[int], object]
) -> Callable[[int], object]:
    """What a sampler does."""
    return lambda samples: (policy(samples), reward(samples))


def _vectors() -> Array:
    words = SIZES["SICK"].words
    return np.random.default_rng(0).normal(size=(words, HIDDEN)).astype(np.float32)


def _reward(examples: Batch, keeps: bool) -> Callable[[int], object]:
    resan = {"name": "resan", "options": {"keep_unselected": keeps}}
    config = ModelConfig(encoder=resan, hidden=HIDDEN)
    model = build_classifier(config, _CLASSES, 2, _vectors(), SIZES["SICK"].words)
    reward, draw = ClassifierReward(model), np.random.default_rng(0)
    drawn = [
        (draw.random((_SAMPLES * len(examples), 2, v.shape[1])) < _KEPT)
        & np.tile(v, (_SAMPLES, 1))[:, None]
        for v in examples.valid
    ]

    def work(samples: int) -> object:
        rows = samples * len(examples)
        return reward.score(examples.repeat(samples), [s[:rows] for s in drawn])["log_likelihood"]

    return work


def _policy(examples: Batch) -> Callable[[int], object]:
    policy = build_policy(PolicyConfig(options={"hidden": HIDDEN}), HIDDEN, "elu")
    vectors = torch.from_numpy(_vectors())
    slots = [
        (
            vectors[torch.from_numpy(t)],
            torch.from_numpy(v),
            torch.rand(_SAMPLES, *v.shape[:1], 2, v.shape[1]),
        )
        for t, v in zip(examples.tokens, examples.valid, strict=True)
    ]

    def work(samples: int) -> object:
        with torch.inference_mode():
            return [policy(e, v).sample(u[:samples]) for e, v, u in slots]

    return work
