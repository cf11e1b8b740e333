"""Lambda follows what is kept: the margin by a slow twin, signs, bounds, state, and merit."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from rss_rl.config import RewardConfig
from rss_rl.learners.share_control import ShareController, share_margin

TARGET = RewardConfig(target_share=0.3, sparsity_cost=0.5)


def logit(chance: float) -> float:
    return math.log(chance / (1 - chance))


def share_above(
    chances: list[np.ndarray], valid: list[np.ndarray], thresholds: tuple[float, float]
) -> list[float]:
    """Mean over examples of the share of tokens that are heads, dependents, and either."""
    shares = []
    for example in range(len(valid[0])):
        counts, tokens = np.zeros(3), 0
        for slot, real in zip(chances, valid, strict=True):
            for place in np.flatnonzero(real[example]):
                tokens += 1
                roles = zip(slot[example, :, place], thresholds, strict=True)
                head, dependent = (logit(float(c)) > threshold for c, threshold in roles)
                counts += (head, dependent, head or dependent)
        shares.append(counts / tokens)
    return np.mean(shares, axis=0).tolist()


def spread(chances: list[np.ndarray], valid: list[np.ndarray], role: int) -> float:
    """Standard deviation of a role's logits; examples weigh the same whatever their lengths."""
    examples = []
    for example in range(len(valid[0])):
        slots = zip(chances, valid, strict=True)
        inside = [c for p, real in slots for c in p[example, role, real[example]]]
        examples.append([logit(min(max(float(c), 1e-7), 1 - 1e-7)) for c in inside])
    mean = np.mean([np.mean(values) for values in examples])
    return float(np.mean([np.mean((np.array(values) - mean) ** 2) for values in examples])) ** 0.5


def reached(kept: float, heads: float, dependents: float) -> dict[str, float]:
    margins = {"selection/margin_heads": heads, "selection/margin_dependents": dependents}
    return {"selection/thresholded_kept": kept} | margins


def margins_of(found: dict[str, float]) -> tuple[float, float]:
    return found["selection/margin_heads"], found["selection/margin_dependents"]


def unscaled(margin: float, scale: float) -> float:
    """In logits what is in standard deviations up to one, and in logits beyond."""
    return margin * scale if abs(margin) < 1 else math.copysign(scale + abs(margin) - 1, margin)


def test_a_policy_that_ran_away_is_pushed_by_its_logits() -> None:
    logits = np.random.default_rng(5).normal(size=(20, 2, 9))
    valid = [np.ones((20, 9), bool)]
    near, far = (
        margins_of(share_margin([1 / (1 + np.exp(-2 * logits - offset))], valid, 0.2))[0]
        for offset in (6, 9)
    )
    assert far - near == pytest.approx(3)


def test_a_sure_policy_is_moved_by_no_more_than_one_that_is_less_sure() -> None:
    draw = np.random.default_rng(5)
    logits, valid = draw.normal(size=(20, 2, 9)), [np.ones((20, 9), bool)]
    calm, sure, timid = (
        margins_of(share_margin([1 / (1 + np.exp(-scale * logits))], valid, 0.5))
        for scale in (1.5, 3, 0.1)
    )
    assert sure == pytest.approx(calm)
    assert all(0 < abs(margin) < 0.15 for margin in timid)


@pytest.mark.parametrize("target", [0.07, 0.3, 0.5, 0.93])
def test_moved_by_the_margins_as_many_heads_as_dependents_are_kept(target: float) -> None:
    draw = np.random.default_rng(3)
    valid = [np.arange(9) < draw.integers(1, 10, 40)[:, None] for _ in range(2)]
    chances = [draw.random((40, 2, 9)) ** np.array([2, 6])[:, None] for _ in range(2)]
    found = share_margin(chances, valid, target)
    assert found["selection/thresholded_kept"] == pytest.approx(
        share_above(chances, valid, (0, 0))[2], abs=1e-9
    )
    spreads = [spread(chances, valid, role) for role in range(2)]
    assert min(spreads) > 1
    heads, dependents, kept = share_above(
        chances, valid, tuple(map(unscaled, margins_of(found), spreads))
    )
    # But for one token of one example.
    assert kept == pytest.approx(target, abs=1 / 40)
    assert heads == pytest.approx(dependents, abs=1 / 40)
    heads, dependents = margins_of(found)
    assert heads > dependents


def test_either_role_keeps_a_token() -> None:
    chances = np.full((1, 2, 10), 0.2)
    chances[0, 0, :2] = chances[0, 1, 2:5] = 0.9
    found = share_margin([chances], [np.ones((1, 10), bool)], 0.4)
    assert found["selection/thresholded_kept"] == 0.5


def test_a_role_that_dies_is_paid_for_though_the_share_is_right() -> None:
    chances = np.full((1, 2, 10), 0.02)
    chances[0, 1, :3] = 0.9
    found = share_margin([chances], [np.ones((1, 10), bool)], 0.3)
    assert found["selection/thresholded_kept"] == pytest.approx(0.3)
    assert margins_of(found)[0] < -1
    shared = np.repeat(chances[:, 1:], 2, axis=1)
    between = (logit(0.9) + logit(0.02)) / 2 / spread([shared], [np.ones((1, 10), bool)], 0)
    found = share_margin([shared], [np.ones((1, 10), bool)], 0.3)
    assert margins_of(found) == pytest.approx((between, between))


def test_lambda_rises_while_too_much_is_kept_and_pays_while_too_little_is() -> None:
    control = ShareController(TARGET)
    assert control.costs == (0.5, 0.5)
    seen = []
    for _ in range(20):
        error = control.observe(reached(0.5, 0.2, 0.0))["selection/share_error"]
        seen.append(control.costs[0])
    assert all(after > before for before, after in pairwise(seen))
    assert seen[0] > 0.5
    assert control.costs[1] == 0.5
    assert error == pytest.approx(0.2)
    for _ in range(5000):
        error = control.observe(reached(0.1, -0.2, -0.2))["selection/share_error"]
    assert max(control.costs) < -1
    assert error == pytest.approx(-0.2)


def test_a_margin_that_falls_fast_is_met_early() -> None:
    slow, fast = ShareController(TARGET), ShareController(TARGET)
    for step in range(8):
        slow.observe(reached(0.4, 0.1, 0.1))
        fast.observe(reached(0.4, 0.1 * (8 - step), 0.1))
    assert fast.costs[0] < slow.costs[0] - 0.5
    assert fast.costs[1] == slow.costs[1]


def test_state() -> None:
    control, other = ShareController(TARGET), ShareController(TARGET)
    for kept, margins in ((0.5, (0.3, 0.1)), (0.2, (-0.1, 0.0)), (0.9, (4.0, -4.0))):
        control.observe(reached(kept, *margins))
        control.scored(kept - 0.05)
    other.load_state_dict(json.loads(json.dumps(control.state_dict())))
    for each in (control, other):
        each.observe(reached(0.25, 0.05, -0.05))
    assert other.state_dict() == control.state_dict()
    assert other.costs == control.costs
    fresh = ShareController(TARGET)
    fresh.load_state_dict(ShareController(TARGET).state_dict())
    assert fresh.state_dict() == ShareController(TARGET).state_dict()


def test_unseen_texts_keep_the_share_that_is_asked_for() -> None:
    control = ShareController(TARGET)
    assert control.target == 0.3
    control.scored(0.1)  # nothing has been learnt yet
    for _ in range(20):
        for _ in range(30):
            control.observe(reached(control.target, 0.0, 0.0))
        control.scored(control.target - 0.03)
    assert control.target == pytest.approx(0.33, abs=1e-3)
    control.scored(0.9)  # of a policy that is still moving
    assert control.target == pytest.approx(0.33, abs=1e-3)


def test_a_schedule_leads_from_all_tokens_to_the_share() -> None:
    falling = RewardConfig(target_share=0.2, share_schedule=0.5)
    control = ShareController(falling, 8)
    seen = []
    for _ in range(7):
        seen.append(control.target)
        control.observe(reached(0.5, 0.1, 0.1))
    assert seen == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])
    assert ShareController(TARGET, 8).target == 0.3
