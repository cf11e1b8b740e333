"""What `check_policy_update` holds built-in updates to, and catches in others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rss_rl.components import Component, built_in_names, find_component
from rss_rl.errors import ComponentError
from rss_rl.learners.score_function import REINFORCE
from rss_rl.learners.updates import Gradients
from rss_rl.testing import check_policy_update


@pytest.mark.parametrize("name", built_in_names("policy_update"))
def test_the_built_in_ones_keep_their_promises(name: str) -> None:
    check_policy_update(find_component("policy_update", name))


class Changed:
    """An update that does one thing in its own way."""

    def __init__(self, setup: Any) -> None:
        self._policy, self._own = setup.policy, REINFORCE.build(setup, REINFORCE.parse({}))
        self.apply, self.gradients = self._own.apply, self._own.gradients
        self.state_dict, self.load_state_dict = self._own.state_dict, self._own.load_state_dict


class Descends(Changed):
    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self.gradients = self._negative

    def _negative(self, batch: Any, inputs: Any, paid: Any, **more: Any) -> Gradients:
        descending = paid._replace(terms=paid.terms.each(lambda term: -term))
        return self._own.gradients(batch, inputs, descending, **more)


class AppliesAtOnce(Changed):
    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self.gradients = self._both

    def _both(self, *args: Any, **more: Any) -> Gradients:
        found: Gradients = self._own.gradients(*args, **more)
        next(self._policy.parameters()).data += 1e-3
        return found


class Forgets(Changed):
    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self.load_state_dict = lambda state: None


class IsFree(Changed):
    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self.gradients = lambda *args, price, **more: self._own.gradients(*args, price=None, **more)


class SaysNothing(Changed):
    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self.gradients = self._nan

    def _nan(self, *args: Any, **more: Any) -> Gradients:
        found = self._own.gradients(*args, **more)
        return Gradients(found.numbers, lambda numbers: found.metrics(numbers) | {"x": math.nan})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Descends, "kept -.* more often"),
        (AppliesAtOnce, "`gradients` changes"),
        (Forgets, "continues with another"),
        (IsFree, "does not lower"),
        (SaysNothing, "not finite"),
    ],
)
def test_a_broken_promise_is_named(kind: Callable[[Any], Any], message: str) -> None:
    broken: Component = replace(REINFORCE, name="mine", build=lambda setup, options: kind(setup))
    with pytest.raises(ComponentError, match=message):
        check_policy_update(broken)
