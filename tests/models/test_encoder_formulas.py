"""Each context encoder against its slow numpy twin, sentence by sentence of a padded batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import encoder_twins
import numpy as np
import pytest
import small
import torch
import twins
from model_configs import model_config
from torch import Tensor, nn

from rss_rl.models.build import build_encoder
from rss_rl.models.encoders.multi_head import MultiHeadContext, sinusoidal_positions

HIDDEN, LENGTHS = small.HIDDEN, (6, 1, 3, 2, 0, 9)
Twin = Callable[[np.ndarray, twins.Parameters], np.ndarray]


def encoder(inputs: int = small.EMBEDDING, **settings: Any) -> Any:
    """A random encoder of a configuration, float64."""
    config = model_config(**({"hidden": HIDDEN, "dropout": 0.0} | settings))
    module: Any = build_encoder(config, inputs)
    small.randomise(module)
    return module.double().eval()


def batch(size: int = small.EMBEDDING, lengths: tuple[int, ...] = LENGTHS) -> tuple[Tensor, Tensor]:
    """Random embeddings, on padding too, and which tokens are real."""
    generator = torch.Generator().manual_seed(3)
    shape = (len(lengths), max(lengths), size)
    valid = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randn(shape, dtype=torch.float64, generator=generator), valid


def all_selected(valid: Tensor) -> Tensor:
    return valid[:, None].expand(-1, 2, -1)


def agrees_with(twin: Twin, module: Any, size: int) -> None:
    """The context of each token, then the vector of each sentence."""
    embedded, valid = batch(size)
    context = module.context(embedded, valid).detach().numpy()
    vectors = module(embedded, valid, all_selected(valid)).detach().numpy()
    p = twins.parameters(module)
    for row, length in enumerate(LENGTHS):
        wanted = twin(embedded[row, :length].numpy(), twins.part(p, "context."))
        np.testing.assert_allclose(context[row, :length], wanted, rtol=1e-9, atol=1e-11)
        pooled = twins.source2token(wanted, twins.part(p, "pool."), "elu")
        np.testing.assert_allclose(vectors[row], pooled, rtol=1e-9, atol=1e-11)


def convolutions(p: twins.Parameters) -> list[twins.Parameters]:
    count = sum(name.endswith(".bias") for name in p if name.startswith("convolutions."))
    return [twins.part(p, f"convolutions.{k}.") for k in range(count)]


def gated_convolutions(x: np.ndarray, p: twins.Parameters) -> np.ndarray:
    return encoder_twins.gated_convolutions(x, p, convolutions(p))


@pytest.mark.parametrize("size", [HIDDEN, 5], ids=["e = d", "e != d"])
@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("bilstm", encoder_twins.bilstm),
        ("bigru", encoder_twins.bigru),
        ("bisru", encoder_twins.bisru),
    ],
)
def test_recurrent_encoders(name: str, twin: Twin, size: int) -> None:
    agrees_with(twin, encoder(size, encoder=name), size)


@pytest.mark.parametrize("size", [HIDDEN, 5], ids=["e = d", "e != d"])
@pytest.mark.parametrize(("layers", "window"), [(3, 5), (1, 1), (2, 4)])
def test_hierarchical_cnn(layers: int, window: int, size: int) -> None:
    module = encoder(size, encoder="hierarchical-cnn", layers=layers, window=window)
    assert len(convolutions(twins.part(twins.parameters(module), "context."))) == layers
    agrees_with(gated_convolutions, module, size)


@pytest.mark.parametrize("activation", ["relu", "elu"])
def test_windows_of_several_lengths(activation: str) -> None:
    module = encoder(encoder="cnn", filters=3, windows=(1, 3, 4), activation=activation)
    embedded, valid = batch()
    vectors = module(embedded, valid, all_selected(valid)).detach().numpy()
    p = convolutions(twins.parameters(module))
    assert [part["weight"].shape for part in p] == [(3, 5, 1), (3, 5, 3), (3, 5, 4)]
    for row, length in enumerate(LENGTHS):
        wanted = encoder_twins.windows(embedded[row, :length].numpy(), p, activation)
        np.testing.assert_allclose(vectors[row], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("size", [5, 6], ids=["odd", "even"])
def test_multi_head(heads: int, size: int) -> None:
    def twin(x: np.ndarray, p: twins.Parameters) -> np.ndarray:
        return encoder_twins.multi_head(x, p, heads, np.ones((len(x), heads, len(x))))

    agrees_with(twin, encoder(size, encoder="multi-head", heads=heads), size)


class Factors(nn.Module):
    """Stands for dropout: multiplies the weights by the same numbers each time."""

    rate = 0.5

    def __init__(self, factors: Tensor) -> None:
        super().__init__()
        self.factors = factors

    def forward(self, weights: Tensor) -> Tensor:
        return weights * self.factors


def test_attention_dropout_is_on_the_weights() -> None:
    module = MultiHeadContext(5, 12, 2, 0.0).double().train()
    small.randomise(module)
    embedded, valid = batch()
    length = max(LENGTHS)
    generator = torch.Generator().manual_seed(1)
    factors = torch.rand(len(LENGTHS), length, 2, length, generator=generator).double()
    module.attention_dropout = Factors(factors)  # type: ignore[assignment]
    context = module(embedded, valid).detach().numpy()
    p = twins.parameters(module)
    for row, n in enumerate(LENGTHS):
        wanted = encoder_twins.multi_head(
            embedded[row, :n].numpy(), p, 2, factors[row, :n, :, :n].numpy()
        )
        np.testing.assert_allclose(context[row, :n], wanted, rtol=1e-9, atol=1e-11)


def test_positions_are_those_of_the_paper() -> None:
    table = sinusoidal_positions(torch.zeros(1, 50, 7, dtype=torch.float64))
    np.testing.assert_allclose(table.numpy(), encoder_twins.positions(50, 7), atol=1e-12)
    whole = sinusoidal_positions(torch.zeros(1, 50, 7))
    np.testing.assert_allclose(whole.numpy(), encoder_twins.positions(50, 7), atol=2e-5)


@pytest.mark.parametrize("activation", ["relu", "elu"])
@pytest.mark.parametrize("keep_unselected", [True, False], ids=["paper", "faithful"])
def test_disan_is_resan_with_everything_selected(activation: str, keep_unselected: bool) -> None:
    disan = encoder(encoder="disan", activation=activation)
    resan = encoder(encoder="resan", activation=activation, keep_unselected=keep_unselected)
    small.randomise(resan, seed=5)
    resan.load_state_dict(disan.state_dict())
    embedded, valid = batch()
    one, other = (
        module(embedded, valid, all_selected(valid)).detach() for module in (disan, resan)
    )
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)
    p = twins.parameters(resan)
    for row, length in enumerate(LENGTHS):
        wanted = twins.disan(embedded[row, :length].numpy(), p, activation, 5.0)
        np.testing.assert_allclose(one[row].numpy(), wanted, rtol=1e-9, atol=1e-11)
