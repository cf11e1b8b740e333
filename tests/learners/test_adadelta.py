"""Adadelta by rows beside torch's, and rows of other optimisers."""

from __future__ import annotations

import copy

import pytest
import torch
from small import stepped
from torch import Tensor, nn

from rss_rl.config import OptimizerConfig
from rss_rl.learners.optim import GradientStep
from rss_rl.learners.row_optimizers import RowAdadelta
from rss_rl.models.embedding import WordEmbedding

RULE = {"lr": 0.5, "rho": 0.9, "eps": 1e-6}
ROWS = 80


def test_dense_gradients_are_torchs() -> None:
    torch.manual_seed(0)
    mine = [nn.Parameter(torch.randn(shape)) for shape in ((5, 9), (3,), (0, 2), ())]
    theirs = copy.deepcopy(mine)
    one = RowAdadelta(mine, weight_decay=0.1, **RULE)
    other = torch.optim.Adadelta(theirs, weight_decay=0.1, **RULE)
    for _ in range(4):
        for a, b in zip(mine, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        one.step()
        other.step()
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    with pytest.raises(ValueError, match="closures are not"):
        one.step(lambda: 0.0)


class Bag(nn.Module):
    """Word vectors and a weight, in a loss that is not linear in either."""

    def __init__(self, *, by_row: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = WordEmbedding(torch.randn(ROWS + 4, 3).numpy(), ROWS)
        self.embedding.gradient_by_row = by_row
        self.weight = nn.Parameter(torch.randn(3, 2))

    def loss(self, tokens: Tensor) -> Tensor:
        # Two calls, as of two sentences.
        first, second = self.embedding(tokens[:1]), self.embedding(tokens[1:])
        return (first @ self.weight).square().sum() + (second @ self.weight).sin().sum()


def tokens_of(update: int) -> Tensor:
    """Padding, words of several places in a batch, fixed words, and rare ones."""
    generator = torch.Generator().manual_seed(update)
    common = torch.randint(0, 6, (3, 4), generator=generator)
    rare = torch.randint(0, ROWS + 4, (3, 1), generator=generator)
    return torch.cat([common, rare], 1)


def step_of(module: nn.Module, name: str, clip: float | None) -> GradientStep:
    config = OptimizerConfig(name=name, learning_rate=0.1, clip_norm=clip, l2=0.01)  # type: ignore[arg-type]
    return GradientStep("some", module, config, ("embedding.",))


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", ["adadelta", "sgd"])
def test_updates_of_rows_equal_those_of_all_rows(name: str, clip: float | None) -> None:
    by_row, dense = Bag(by_row=True), Bag(by_row=False)
    start = by_row.embedding.trainable.detach().clone()
    one, other = step_of(by_row, name, clip), step_of(dense, name, clip)
    seen = torch.zeros(ROWS, dtype=torch.bool)
    for update in range(60):
        tokens = tokens_of(update)
        seen[tokens[(tokens > 0) & (tokens < ROWS)]] = True
        norms = [
            stepped(step, net.loss(tokens), update) for step, net in ((one, by_row), (other, dense))
        ]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert 8 < int(seen.sum()) < ROWS - 4
    for mine, theirs in zip(by_row.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-6)
    moved = (by_row.embedding.trainable != start).any(1)
    assert torch.equal(moved, seen)


@pytest.mark.parametrize("name", ["adam", "adadelta", "sgd"])
def test_a_resumed_run_goes_on_to_the_bit(name: str) -> None:
    whole = Bag(by_row=True)
    step = step_of(whole, name, 0.5)
    for update in range(10):
        stepped(step, whole.loss(tokens_of(update)), update)
    resumed = copy.deepcopy(whole)
    again = step_of(resumed, name, 0.5)
    saved = {key: value.clone() for key, value in step.state_dict().items()}
    again.load_state_dict(saved)
    for update in range(10, 20):
        stepped(step, whole.loss(tokens_of(update)), update)
        stepped(again, resumed.loss(tokens_of(update)), update)
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True)
    )
    after = again.state_dict()
    assert all(torch.equal(after[k], v) for k, v in step.state_dict().items())
