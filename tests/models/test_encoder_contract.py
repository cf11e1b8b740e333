"""`check_encoder`: every built-in encoder keeps its promises, and each broken one is noticed."""

from __future__ import annotations

from typing import Any

import bad_encoders
import pytest
import torch
from bad_encoders import component
from model_configs import VECTOR_ENCODERS

from rss_rl.components import find_component
from rss_rl.errors import ComponentError
from rss_rl.testing import check_encoder

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in VECTOR_ENCODERS},
    "multi-head": ("multi-head", {"heads": 2}),
    "cnn": ("cnn", {"filters": 3}),
    "resan, paper's": ("resan", {"keep_unselected": True}),
    "biblosan w/o local": ("biblosan", {"local": False}),
    "biblosan w/o global": ("biblosan", {"across": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_built_in_encoder_keeps_its_promises(case: str) -> None:
    name, options = CASES[case]
    check_encoder(find_component("encoder", name), 5, options=options)


def test_an_encoder_of_ones_own_passes() -> None:
    check_encoder(component(), 5)


@pytest.mark.parametrize(
    ("module", "changed", "message"),
    [
        ("CountsPadding", {}, "depends on the padding around it"),
        ("BiasOfNothing", {"capabilities": frozenset()}, "without a token does not give zeros"),
        ("Unused", {}, "no finite gradient to 'unused'"),
        ("OtherGates", {}, "gates of 0 and 1 do not give what that selection gives"),
        ("HardGates", {}, "no finite gradient to 'gates'"),
        ("ReadsUnselected", {}, "reads_unselected is true"),
        ("HiddenState", {"capabilities": frozenset()}, "newly built copy with its state"),
        ("Counts", {}, "a buffer changes in training mode"),
        ("OtherWeights", {}, "equal seeds give other weights in 'map.weight'"),
        ("Random", {"capabilities": frozenset()}, "differs between two calls"),
    ],
)
def test_a_broken_promise_is_named(module: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        check_encoder(component(getattr(bad_encoders, module), **changed), 5)


def test_gates_that_are_declared_and_not_there_are_noticed() -> None:
    plain = torch.nn.Linear(5, 4)
    with pytest.raises(ComponentError, match="declares `gates` and has no method gated"):
        check_encoder(component(build=lambda setup, options: plain), 5)
