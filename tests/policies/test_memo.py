"""What `once` is asked for within `remembering` is computed once, and is as it would be anew."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rss_rl.policies.memo import once, remembering


class Counted:
    """A computation with a weight, and how often it was made."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.full((2, 2), 1 / 3))
        self.calls = 0

    def __call__(self, *given: Tensor) -> Tensor:
        self.calls += 1
        return sum(given, start=torch.zeros(2)) @ self.weight


def test_the_same_tensors_alone_are_the_same() -> None:
    compute, one = Counted(), torch.ones(2)
    with remembering():
        first = once(compute, compute, one)
        assert once(compute, compute, one) is first
        assert compute.calls == 1
        others = ((one.clone(),), (one, one), (one[:1].expand(2),))
        for number, given in enumerate(others, start=2):
            once(compute, compute, *given)
            assert compute.calls == number
        once(compute, compute, one, key="another")
        once(object(), compute, one)
        assert compute.calls == 6


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_remembered_outside(fails: bool) -> None:
    compute, one = Counted(), torch.ones(2)
    once(compute, compute, one)
    with pytest.raises(ZeroDivisionError) if fails else remembering(), remembering():
        once(compute, compute, one)
        if fails:
            raise ZeroDivisionError
    once(compute, compute, one)
    once(compute, compute, one)
    assert compute.calls == 4


def test_within_another_the_outer_one_remembers() -> None:
    compute, one = Counted(), torch.ones(2)
    with remembering():
        with remembering():
            once(compute, compute, one)
        once(compute, compute, one)
    assert compute.calls == 1


def test_what_has_a_gradient_serves_those_who_want_none() -> None:
    compute, one = Counted(), torch.ones(2)
    with remembering():
        learnt = once(compute, compute, one)
        with torch.no_grad():
            shown = once(compute, compute, one)
    assert compute.calls == 1
    assert learnt.requires_grad
    assert not shown.requires_grad
    assert torch.equal(learnt, shown)


def test_what_has_none_does_not_serve_those_who_want_one() -> None:
    compute, one = Counted(), torch.ones(2)
    with remembering():
        with torch.no_grad():
            once(compute, compute, one)
        once(compute, compute, one).sum().backward()
    assert compute.calls == 2
    assert compute.weight.grad is not None


def test_what_is_rounded_is_computed_apart() -> None:
    compute, one = Counted(), torch.ones(2)
    with remembering():
        exact = once(compute, compute, one)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = once(compute, compute, one)
        assert once(compute, compute, one) is exact
    assert compute.calls == 2
    assert rounded.dtype == torch.bfloat16
