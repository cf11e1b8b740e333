"""`model.attention_error`: long texts within the error, short ones as without it."""

import pytest
import torch
from model_configs import model_config

from rss_rl.models.build import build_encoder
from tests.support.small import selection

ERROR = 1e-2


def outputs(
    encoder: str, tokens: int, error: float | None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Sentence vectors of two texts by equal weights."""
    torch.manual_seed(0)
    # Kernels take all pairs of a text that is four times as long.
    config = model_config(
        encoder=encoder, hidden=8, dropout=0.0, attention_error=error, attention="eager"
    )
    built = build_encoder(config, 6)
    embedded = torch.randn(2, tokens, 6)
    valid = torch.arange(tokens) < torch.tensor([[tokens], [tokens - 3]])
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        return built(embedded, valid, selection(valid, 0.8))


@pytest.mark.parametrize("encoder", ["resan", "disan"])
def test_long_texts_are_within_the_error(encoder: str) -> None:
    exact, near = (outputs(encoder, 600, error) for error in (None, ERROR))
    assert not torch.equal(exact, near)
    torch.testing.assert_close(near, exact, atol=ERROR, rtol=0)


@pytest.mark.parametrize("encoder", ["resan", "disan"])
def test_short_texts_are_exact(encoder: str) -> None:
    assert torch.equal(outputs(encoder, 40, ERROR), outputs(encoder, 40, None))


def test_short_types_are_summed_in_float32() -> None:
    exact, near = (outputs("resan", 600, error, torch.bfloat16) for error in (None, ERROR))
    torch.testing.assert_close(near.float(), exact.float(), atol=3 * ERROR, rtol=0)
