"""`check_encoder`: every built-in encoder keeps its promises, and each broken one is noticed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_configs import VECTOR_ENCODERS
from torch import Tensor, nn

from rss_rl.components import find_component
from rss_rl.errors import ComponentError
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup
from rss_rl.ops.gated import gated_mean, union
from rss_rl.ops.masking import masked_mean
from rss_rl.testing import check_encoder


class Good(nn.Module):
    """Mean of a linear map of the selected tokens."""

    reads_unselected = False

    def __init__(self, setup: EncoderSetup) -> None:
        super().__init__()
        self.map = nn.Linear(setup.inputs, setup.hidden, bias=False)
        self.output_size = setup.hidden

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        return masked_mean(self.map(embedded), valid & selection.any(1))

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        return gated_mean(self.map(embedded), union(gates))


class CountsPadding(Good):
    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        vectors = super().forward(embedded, valid, selection)
        return vectors * valid.sum(1, keepdim=True) / max(1, valid.shape[1])


class BiasOfNothing(Good):
    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        return super().forward(embedded, valid, selection) + 1


class Unused(Good):
    def __init__(self, setup: EncoderSetup) -> None:
        super().__init__(setup)
        self.unused = nn.Parameter(torch.ones(3))


class OtherGates(Good):
    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        return gated_mean(self.map(embedded), gates[:, 0])


class HardGates(Good):
    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        return gated_mean(self.map(embedded), union(gates.round().detach())) + 0 * gates.sum()


class ReadsUnselected(Good):
    reads_unselected = True

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        return masked_mean(self.map(embedded), valid)


class HiddenState(Good):
    """A number that no state_dict has."""

    made = 0

    def __init__(self, setup: EncoderSetup) -> None:
        super().__init__(setup)
        HiddenState.made += 1
        self.scale = float(HiddenState.made)

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        return self.scale * super().forward(embedded, valid, selection)


class Counts(Good):
    """Keeps a statistic of what it is trained on."""

    def __init__(self, setup: EncoderSetup) -> None:
        super().__init__(setup)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        return super().forward(embedded, valid, selection)


class OtherWeights(Good):
    drawn = torch.Generator().manual_seed(1)

    def __init__(self, setup: EncoderSetup) -> None:
        super().__init__(setup)
        nn.init.normal_(self.map.weight, generator=OtherWeights.drawn)


class Random(Good):
    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        return torch.dropout(super().forward(embedded, valid, selection), 0.5, True)


def component(module: type[nn.Module] = Good, **changed: Any) -> EncoderComponent:
    """An encoder component that builds `module`."""
    given: dict[str, Any] = {
        "name": module.__name__,
        "help": "For tests.",
        "build": lambda setup, options: module(setup),
        "capabilities": frozenset({"gates", "kept_only"}),
    }
    return EncoderComponent(**given | changed)


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
        check_encoder(component(globals()[module], **changed), 5)


def test_gates_that_are_declared_and_not_there_are_noticed() -> None:
    plain = torch.nn.Linear(5, 4)
    with pytest.raises(ComponentError, match="declares `gates` and has no method gated"):
        check_encoder(component(build=lambda setup, options: plain), 5)
