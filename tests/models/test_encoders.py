"""What every encoder promises, for each name that a configuration may give."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch
from model_configs import VECTOR_ENCODERS, model_config
from torch import Tensor

from rss_rl.models import build as build_module
from rss_rl.models.build import build_encoder
from rss_rl.models.dropout import keyed_dropout
from rss_rl.models.encoders.pooled import PooledEncoder
from rss_rl.ops.native import missing_compiler

NAMES = VECTOR_ENCODERS
LENGTHS = (6, 1, 3, 0, 9, 2)
SIZES: dict[str, dict[str, Any]] = {
    "multi-head": {"heads": 2},
    "biblosan": {"block_length": 2},
    "cnn": {"filters": 3, "windows": (2, 5)},
    "hierarchical-cnn": {"layers": 2},
}

every_encoder = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(params=["eager", "compiled"], autouse=True)
def attention(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `auto` comes to."""
    if request.param == "compiled" and missing_compiler() is not None:
        pytest.skip(str(missing_compiler()))
    monkeypatch.setattr(build_module, "outer_backend", lambda _: request.param)


def build(name: str, *, seed: int = 0, double: bool = True, dropout: float = 0.0) -> Any:
    """A random encoder; in training mode where there is dropout."""
    config = model_config(encoder=name, hidden=small.HIDDEN, dropout=dropout, **SIZES.get(name, {}))
    module: Any = build_encoder(config, small.EMBEDDING)
    small.randomise(module, seed)
    return (module.double() if double else module).train(dropout > 0)


def batch(*lengths: int, double: bool = True, width: int | None = None) -> tuple[Tensor, ...]:
    """Embeddings that want gradients, valid and a selection of everything."""
    shape = (len(lengths), width if width is not None else max(lengths), small.EMBEDDING)
    valid = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
    embedded = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    embedded = (embedded if double else embedded.float()).requires_grad_()
    return embedded, valid, valid[:, None].expand(-1, 2, -1)


def loss(vectors: Tensor) -> Tensor:
    """A sum in which every feature has a weight of its own."""
    return (vectors * torch.arange(1.0, vectors.shape[1] + 1)).sin().sum()


def gradients(module: Any) -> dict[str, Tensor]:
    """Of each parameter, zeros where it has none; forgets them."""
    found = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in module.named_parameters()
    }
    module.zero_grad()
    return found


@every_encoder
def test_dropout_does_not_depend_on_who_shares_the_batch(name: str) -> None:
    model = small.classifier(dropout=0.4, encoder=name, **SIZES.get(name, {})).train()
    # The first example has no token in its first sentence: alone, that batch has no column.
    tokens, valid, _ = small.pairs((0, 3), (6, 2), (1, 7), (5, 0))
    keys = small.keys(0, 4)

    def logits(row: slice) -> Tensor:
        widths = [int(v[row].sum(1).max()) for v in valid]
        with keyed_dropout(keys[row]):
            return model(
                [t[row, :n] for t, n in zip(tokens, widths, strict=True)],
                [v[row, :n] for v, n in zip(valid, widths, strict=True)],
            )

    whole = logits(slice(None))
    assert not torch.allclose(whole, model.eval()(tokens, valid))
    model.train()
    for row in (slice(0, 1), slice(1, 3), slice(2, 3), slice(3, 4)):
        torch.testing.assert_close(logits(row), whole[row], rtol=1e-9, atol=1e-12)


@every_encoder
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_bfloat16_products_change_little_and_leave_float32(name: str, dropout: float) -> None:
    module = build(name, double=False, dropout=dropout)
    embedded, valid, selection = batch(*LENGTHS, double=False)
    keys = torch.arange(len(LENGTHS))
    with keyed_dropout(keys):
        exact = module(embedded, valid, selection)
    with keyed_dropout(keys), torch.autocast("cpu", torch.bfloat16):
        vectors = module(embedded, valid, selection)
        if isinstance(module, PooledEncoder):
            assert module.context(embedded, valid).dtype == torch.float32
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, exact, rtol=0.05, atol=0.1)
    if list(module.parameters()):
        assert not torch.equal(vectors, exact)
    loss(vectors).backward()
    for label, gradient in gradients(module).items():
        assert torch.isfinite(gradient).all(), label
