"""Adadelta by both backends and by rows beside torch's, and rows of other optimisers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import learners.adadelta
from rss_rl.config import OptimizerConfig
from rss_rl.learners.adadelta import ROW_STEPS, Adadelta, _update_block
from rss_rl.learners.optim import GradientStep, load_optimizer_tensors, optimizer_tensors
from rss_rl.models.embedding import WordEmbedding
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.compilers import missing_compiler

RULE = {"lr": 0.5, "rho": 0.9, "eps": 1e-6}
ROWS = 80


WAYS = [
    "eager",
    pytest.param(
        "compiled",
        marks=pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler())),
    ),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("backend", WAYS)
def test_a_step_equals_torchs(
    backend: KernelBackend, threads: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners.adadelta, "_BLOCK", 7)
    monkeypatch.setattr(learners.adadelta, "threads_for", lambda _: threads)
    if backend == "compiled":
        monkeypatch.setattr(learners.adadelta, "_update_block", as_of_strides_alone)
    torch.manual_seed(0)
    shapes = [(5, 9), (3,), (0, 2), (), (150, 40), (16384,), (4, 6)]
    mine = [nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]
    mine.append(nn.Parameter(torch.randn(4, 6, dtype=dtype).T))
    theirs = copy.deepcopy(mine)
    one = Adadelta(mine, weight_decay=0.1, **RULE, backend=backend)
    other = torch.optim.Adadelta(theirs, weight_decay=0.1, **RULE)
    for step in range(4):
        for a, b in zip(mine, theirs, strict=True):
            a.grad = torch.randn_like(a) * 10.0 ** (4 * step - 8)
            b.grad = a.grad.clone()
        one.step()
        other.step()
    # torch's roots are not the nearest numbers.
    bound = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, **bound)
        for key, value in other.state[b].items():
            torch.testing.assert_close(one.state[a][key], value, rtol=bound["rtol"], atol=0.0)
    with pytest.raises(ValueError, match="not evaluated"):
        one.step(lambda: 0.0)


@pytest.mark.parametrize("backend", WAYS)
def test_whole_numbers_are_numbers(backend: KernelBackend) -> None:
    (mine,), (theirs,) = ([nn.Parameter(torch.ones(3))] for _ in range(2))
    one = Adadelta([mine], lr=1, rho=0, eps=1, backend=backend)
    other = torch.optim.Adadelta([theirs], lr=1, rho=0, eps=1)
    mine.grad, theirs.grad = torch.full((3,), 2.0), torch.full((3,), 2.0)
    one.step()
    other.step()
    torch.testing.assert_close(mine, theirs)
    assert mine[0] < 1


@pytest.mark.parametrize("backend", WAYS)
def test_many_rows_in_several_threads(
    backend: KernelBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners.adadelta, "threads_for", lambda _: 3)
    torch.manual_seed(0)
    by_row, dense = (nn.Parameter(torch.ones(400, 300)) for _ in range(2))
    one, other = (Adadelta([p], **RULE, backend=backend) for p in (by_row, dense))
    for step in range(3):
        rows = torch.randperm(400)[: 100 * (step + 1)].sort().values
        gradient = torch.zeros(400, 300).index_copy_(0, rows, torch.randn(len(rows), 300))
        dense.grad = gradient
        by_row.grad = gradient.to_sparse(1).coalesce()
        one.step()
        other.step()
    torch.testing.assert_close(by_row, dense, rtol=1e-5, atol=1e-6)


def as_of_strides_alone(values: Tensor, *others: Any) -> None:
    """The blocks' update, of which a kernel leaves only what is not contiguous."""
    assert not values.is_contiguous()
    _update_block(values, *others)


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


def step_of(
    module: nn.Module, name: str, clip: float | None, backend: KernelBackend = "eager"
) -> GradientStep:
    config = OptimizerConfig(name=name, learning_rate=0.1, clip_norm=clip, l2=0.01)  # type: ignore[arg-type]
    return GradientStep("some", module, config, ("embedding.",), backend)


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", ["adam", "adadelta", "sgd"])
@pytest.mark.parametrize("backend", WAYS)
def test_updates_of_rows_equal_those_of_all_rows(
    backend: KernelBackend, name: str, clip: float | None
) -> None:
    by_row, dense = Bag(by_row=True), Bag(by_row=False)
    start = by_row.embedding.trainable.detach().clone()
    one, other = step_of(by_row, name, clip, backend), step_of(dense, name, clip, backend)
    seen = torch.zeros(ROWS, dtype=torch.bool)
    for update in range(60):
        tokens = tokens_of(update)
        seen[tokens[(tokens > 0) & (tokens < ROWS)]] = True
        norms = [step(net.loss(tokens), update) for step, net in ((one, by_row), (other, dense))]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert 8 < int(seen.sum()) < ROWS - 4
    for mine, theirs in zip(by_row.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-6)
    moved = (by_row.embedding.trainable != start).any(1)
    assert torch.equal(moved, seen)


@pytest.mark.parametrize("backend", WAYS)
def test_rows_that_waited_have_the_averages_of_those_that_did_not(
    backend: KernelBackend,
) -> None:
    by_row, dense = Bag(by_row=True), Bag(by_row=False)
    one, other = (step_of(bag, "adadelta", None, backend) for bag in (by_row, dense))
    for update in range(12):
        for step, net in ((one, by_row), (other, dense)):
            step(net.loss(tokens_of(update)), update)
    assert ROW_STEPS in one.optimizer.state[by_row.embedding.trainable]
    by_row.embedding.gradient_by_row = False  # as in a run that goes on with more learners
    for step, net in ((one, by_row), (other, dense)):
        step(net.loss(tokens_of(99)), 99)
    found, expected = (optimizer_tensors(step.optimizer) for step in (one, other))
    assert set(found) == set(expected)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-12, msg=key)


@pytest.mark.parametrize("name", ["adam", "adadelta", "sgd"])
@pytest.mark.parametrize("backend", WAYS)
def test_a_resumed_run_goes_on_to_the_bit(backend: KernelBackend, name: str) -> None:
    whole = Bag(by_row=True)
    step = step_of(whole, name, 0.5, backend)
    for update in range(10):
        step(whole.loss(tokens_of(update)), update)
    resumed = copy.deepcopy(whole)
    again = step_of(resumed, name, 0.5, backend)
    saved = {key: value.clone() for key, value in optimizer_tensors(step.optimizer).items()}
    load_optimizer_tensors(again.optimizer, saved)
    for update in range(10, 20):
        step(whole.loss(tokens_of(update)), update)
        again(resumed.loss(tokens_of(update)), update)
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True)
    )
    after = optimizer_tensors(again.optimizer)
    assert all(torch.equal(after[k], v) for k, v in optimizer_tensors(step.optimizer).items())


def test_rows_go_without_l2() -> None:
    table = nn.Parameter(torch.ones(4, 2))
    table.grad = torch.eye(4, 2).to_sparse(1).coalesce()
    with pytest.raises(ValueError, match="without L2"):
        Adadelta([table], weight_decay=0.1, **RULE).step()
