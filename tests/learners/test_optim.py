"""The guarded step: L2, clipping, decay, refusal of what is not finite, state round trip."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small import stepped
from torch import Tensor, nn

from rss_rl.config import OptimizerConfig
from rss_rl.errors import CheckpointError, NonFiniteError
from rss_rl.learners.optim import GradientStep


class Net(nn.Module):
    """A weight, a bias and an embedding, all of ones; the loss has gradient 1 everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 3))
        self.bias = nn.Parameter(torch.ones(3))
        self.embedding = nn.ParameterDict({"trainable": nn.Parameter(torch.ones(4, 2))})

    def loss(self, factor: float = 1.0) -> Tensor:
        return factor * sum((p.sum() for p in self.parameters()), torch.zeros(()))


def step_of(module: nn.Module, **settings: Any) -> GradientStep:
    config = OptimizerConfig(**({"clip_norm": None} | settings))
    return GradientStep("some", module, config, embedding=("embedding.",))


def values(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


@pytest.mark.parametrize("name", ["adam", "adadelta", "sgd"])
def test_l2_is_the_gradient_2_gamma_theta_on_weights_alone(name: str) -> None:
    gamma = 0.3
    with_l2, by_hand = Net(), Net()
    one = step_of(with_l2, name=name, l2=gamma, learning_rate=0.1)
    other = step_of(by_hand, name=name, learning_rate=0.1)
    for update in range(3):
        coefficients = torch.linspace(-1, 1, 6).reshape(2, 3) * (update + 1)
        stepped(one, (with_l2.weight * coefficients).sum() + with_l2.loss(), update)
        penalty = gamma * by_hand.weight.square().sum()
        stepped(other, (by_hand.weight * coefficients).sum() + by_hand.loss() + penalty, update)
    for key, value in values(with_l2).items():
        torch.testing.assert_close(value, values(by_hand)[key], rtol=1e-5, atol=1e-7, msg=key)
    without = Net()
    stepped(step_of(without, name=name, learning_rate=0.1), without.loss(), 0)
    assert not torch.equal(without.weight, with_l2.weight)


def test_adadelta_takes_the_papers_settings() -> None:
    net = Net()
    step = step_of(net, name="adadelta", learning_rate=0.5, rho=0.95, eps=1e-8)
    assert isinstance(step.optimizer, torch.optim.Adadelta)
    square, change, theta = 0.0, 0.0, 1.0  # Zeiler 2012, by hand, on one weight with gradient g
    for update, g in enumerate([1.0, -2.0, 0.5]):
        stepped(step, net.loss(g), update)
        square = 0.95 * square + 0.05 * g * g
        move = ((change + 1e-8) ** 0.5 / (square + 1e-8) ** 0.5) * g
        change = 0.95 * change + 0.05 * move * move
        theta -= 0.5 * move
        assert net.weight[0, 0].item() == pytest.approx(theta, abs=1e-6)
        assert net.weight[0, 0].item() != pytest.approx(1.0, abs=1e-6)


def test_sgd_moves_by_the_clipped_gradient_and_has_no_state() -> None:
    net = Net()
    step = step_of(net, name="sgd", learning_rate=0.1, clip_norm=10.0)
    factor, theta = 100.0, 1.0  # each of 17 entries has this gradient
    for update in range(2):
        stepped(step, net.loss(factor), update)
        theta -= 0.1 * 10 / 17**0.5
    assert net.weight[0, 0].item() == pytest.approx(theta, abs=1e-5)
    stepped(step, net.loss(0.5), 2)
    assert net.bias[0].item() == pytest.approx(theta - 0.1 * 0.5, abs=1e-5)
    assert step.state_dict() == {}
    step.load_state_dict({})
    with pytest.raises(CheckpointError, match="another optimizer"):
        step.load_state_dict({"0/exp_avg": torch.zeros(2, 3)})


def test_clipping_scales_the_whole_gradient_and_reports_its_norm() -> None:
    size = 17**0.5  # 6 + 3 + 8 entries of 1
    for limit, scale in ((0.5, 0.5 / size), (100.0, 1.0), (None, 1.0)):
        net = Net()
        norm = stepped(step_of(net, clip_norm=limit), net.loss(), 0)
        assert norm == pytest.approx(size, rel=1e-6)
        for parameter in net.parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(
                parameter.grad, torch.full_like(parameter, scale), rtol=1e-5, atol=1e-7
            )


def test_learning_rate_falls_linearly_to_zero() -> None:
    net = Net()
    step = step_of(net, name="adam", learning_rate=0.1, decay_updates=4, embedding_rate=0.5)
    moves = []
    for update in (0, 1, 3, 4, 9):
        before = values(net)
        stepped(step, net.loss(), update)
        moves.append(
            {key: (before[key] - value).mean().item() for key, value in values(net).items()}
        )
    assert [m["weight"] for m in moves] == pytest.approx([0.1, 0.075, 0.025, 0, 0], abs=1e-6)
    assert [m["embedding.trainable"] for m in moves] == pytest.approx(
        [0.05, 0.0375, 0.0125, 0, 0], abs=1e-6
    )


def test_embedding_rate_zero_keeps_the_word_vectors() -> None:
    net = Net()
    stepped(step_of(net, embedding_rate=0.0), net.loss(), 0)
    assert torch.equal(values(net)["embedding.trainable"], torch.ones(4, 2))
    assert not torch.equal(net.weight.detach(), torch.ones(2, 3))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_changes_nothing(bad: float) -> None:
    net = Net()
    step = step_of(net)
    stepped(step, net.loss(), 0)
    before, state = values(net), step.state_dict()
    state = {key: value.clone() for key, value in state.items()}
    with pytest.raises(NonFiniteError, match="^the some loss is (nan|-?inf)"):
        stepped(step, net.loss() * bad, 1)
    assert all(torch.equal(before[key], value) for key, value in values(net).items())
    after = step.state_dict()
    assert all(torch.equal(state[key], value) for key, value in after.items())


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_gradient_that_is_not_finite_changes_nothing(clip: float | None) -> None:
    net = Net()
    step = step_of(net, clip_norm=clip)
    loss = (net.bias - 1).abs().sqrt().sum()  # 0, with an infinite slope
    with pytest.raises(NonFiniteError, match="gradient norm of the some loss is"):
        stepped(step, loss, 0)
    assert all((value == 1).all() for value in values(net).values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"9/exp_avg": torch.zeros(3)},
        {"x/exp_avg": torch.zeros(3)},
        {"0/exp_avg": torch.zeros(3, 2)},
        {"0/exp_avg": torch.zeros(7)},
    ],
)
def test_tensors_of_other_parameters_are_refused(wrong: dict[str, Tensor]) -> None:
    step = step_of(Net())
    with pytest.raises(CheckpointError, match="does not fit the parameters"):
        step.load_state_dict(wrong)
