"""Optimisers over disjoint parameter groups, and guarded steps with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rss_rl.config import OptimizerConfig
from rss_rl.errors import CheckpointError, NonFiniteError
from rss_rl.learners.group import ALONE, Group
from rss_rl.learners.row_optimizers import PlainSGD, RowAdadelta, RowAdam


class GradientStep:
    """An optimizer with clipping and a guard against non-finite losses and gradients.

    L2 applies to weight matrices only: not to biases, nor to embeddings, which have their own
    learning rate, nor to the parameters of a module with an attribute `relative_rate`, whose
    learning rate is that multiple of the configured one. Frozen parameters are skipped.

    Args:
        name: of the parameter group, for errors.
        embedding: name prefixes of the parameters that are embeddings, of which an update changes
            only the rows with a gradient, see `RowAdam` and `RowAdadelta`.
        group: of learners; sparse gradients of embeddings are summed over it.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        config: OptimizerConfig,
        embedding: tuple[str, ...] = (),
        *,
        group: Group = ALONE,
    ) -> None:
        self._name = name
        self._clip = config.clip_norm
        self._group = group
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        rates = _relative_rates(module)
        apart: dict[float, list[Tensor]] = {}
        decayed: list[Tensor] = []
        plain: list[Tensor] = []
        embeddings: list[Tensor] = []
        for key, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            if parameter in rates:
                apart.setdefault(rates[parameter], []).append(parameter)
                continue
            others = decayed if config.l2 and parameter.ndim >= 2 else plain
            (embeddings if key.startswith(embedding) else others).append(parameter)
        # J holds gamma |theta|^2, whose gradient is 2 gamma theta.
        groups: list[dict[str, Any]] = [
            {"params": decayed, "weight_decay": 2 * config.l2},
            {"params": plain},
            {"params": embeddings, "lr": config.learning_rate * config.embedding_rate},
        ]
        if config.name == "adam":
            groups[-1]["rows"] = True
        groups += [
            {"params": each, "lr": config.learning_rate * rate} for rate, each in apart.items()
        ]
        self.optimizer = _optimizer(groups, config)
        self._embeddings = embeddings
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        self._decay = config.decay_updates

    def _set_rates(self, update: int) -> None:
        left = 1.0 if self._decay is None else max(0.0, 1.0 - update / self._decay)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * left

    def prepare(self, update: int, *parts: tuple[Tensor, float]) -> Tensor:
        """Backpropagate; the gradient norm [], which the host does not read. No parameter changes.

        Args:
            update: of the run, from 0; sets the decayed learning rate: no scheduler state is saved.
            parts: the loss is their sum, each times its weight; in a group of learners, the shard's
                part of the loss. The backward of one without weight is spared.
        """
        for parameter in self.parameters:
            parameter.grad = None
        weighted = {part: torch.full_like(part, weight) for part, weight in parts if weight}
        torch.autograd.backward([*weighted], [*weighted.values()])
        self._gather_rows()
        self._set_rates(update)
        self._norm = torch.nn.utils.get_total_norm(self._gradients())
        return self._norm

    def clip(self, loss: float, norm: float) -> None:
        """Check and clip the gradients that `prepare` computed.

        Args:
            loss: of the global batch. norm: what `prepare` returned.

        Raises:
            NonFiniteError: one of them is not finite.
        """
        if not math.isfinite(loss):
            raise NonFiniteError(f"the {self._name} loss is {loss}")
        if not math.isfinite(norm):
            raise NonFiniteError(f"the gradient norm of the {self._name} loss is {norm}")
        if self._clip is not None and self._clip < norm + 1e-6:
            factor = torch.clamp(self._clip / (self._norm + 1e-6), max=1.0)  # as torch clips
            torch._foreach_mul_(self._gradients(), factor)

    def apply(self) -> None:
        """Apply the gradients."""
        self.optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """The optimizer's state, `<parameter number>/<quantity>`."""
        return {
            f"{number}/{key}": value
            for number, state in self.optimizer.state_dict()["state"].items()
            for key, value in state.items()
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `state_dict`.

        Raises:
            CheckpointError: the tensors do not fit the parameters.
        """
        state: dict[int, dict[str, Tensor]] = {}
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for name, value in tensors.items():
            number, _, key = name.partition("/")
            fits = number.isdecimal() and int(number) < len(parameters)
            if not fits or not _fits(key, value, parameters[int(number)]):
                raise CheckpointError(f"optimizer state '{name}' does not fit the parameters")
            state.setdefault(int(number), {})[key] = value
        quantities = {frozenset(entry) - _OF_ROWS for entry in state.values()}
        if quantities - {_QUANTITIES[type(self.optimizer)]}:
            raise CheckpointError(
                "optimizer state lacks a quantity, or has one of another optimizer"
            )
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _gather_rows(self) -> None:
        """Coalesce sparse gradients and sum them over the group."""
        for table in self._embeddings:
            if table.grad is not None and table.grad.is_sparse:
                table.grad = self._group.sum_rows(table.grad.coalesce())

    def _gradients(self) -> list[Tensor]:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        return [each.values() if each.is_sparse else each for each in gradients]


def _relative_rates(module: nn.Module) -> dict[Tensor, float]:
    """The relative learning rates of all parameters that have one."""
    return {
        parameter: part.relative_rate  # type: ignore[misc]
        for part in module.modules()
        if hasattr(part, "relative_rate")
        for parameter in part.parameters()
    }


def _optimizer(groups: list[dict[str, Any]], config: OptimizerConfig) -> torch.optim.Optimizer:
    if config.name == "adadelta":
        return RowAdadelta(
            groups, lr=config.learning_rate, rho=config.rho, eps=config.eps, foreach=True
        )
    if config.name == "sgd":
        return PlainSGD(groups, lr=config.learning_rate, foreach=True)
    return RowAdam(groups, lr=config.learning_rate, betas=config.betas, eps=config.eps, fused=True)


_QUANTITIES: dict[type[torch.optim.Optimizer], frozenset[str]] = {
    RowAdam: frozenset({"step", *RowAdam.averages}),
    RowAdadelta: frozenset({"step", *RowAdadelta.averages}),
    PlainSGD: frozenset(),
}


_OF_ROWS = frozenset({RowAdam.counter, RowAdadelta.counter})
"""Additional quantities of tables, one number a row."""


def _fits(key: str, value: Tensor, parameter: Tensor) -> bool:
    """A quantity is a scalar, or has its parameter's shape, or one number for each row."""
    if key in _OF_ROWS:
        return value.shape == parameter.shape[:1]
    return not value.ndim or value.shape == parameter.shape
