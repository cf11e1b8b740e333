"""Contract tests on empty input: a batch without a sentence, and sentences without a token.

Legend: K samples, B sentences, R = 1 or 2 bits that are drawn for a token, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rss_rl.errors import PolicyError
from rss_rl.policies.contract_case import Case
from rss_rl.policies.protocol import FactorisedPolicy, RelaxedPolicy, StochasticPolicy


class _Method(NamedTuple):
    """A method of a policy on a batch: what it is called, the call, and the shapes it returns."""

    name: str
    call: Callable[[], Sequence[Tensor]]
    shapes: Sequence[Sequence[int]]


def check_empty(case: Case) -> None:
    """A learner's shard may have no example, and a sentence no token: both must give zeros.

    Raises:
        PolicyError: a method fails, or returns another shape, nonzero values or a non-finite
            gradient, which would spoil the update of a whole batch.
    """
    nowhere, unseen = torch.zeros_like(case.valid), torch.zeros_like(case.tokens)
    for where, tokens, valid, uniforms in (
        ("a batch without a sentence", case.tokens[:0], case.valid[:0], case.uniforms[:, :0]),
        ("sentences without a token", unseen, nowhere, case.uniforms),
    ):
        for method in _methods(case.policy, tokens, valid, uniforms):
            name = f"{method.name} of {where}"
            try:
                values = method.call()
            except (RuntimeError, IndexError, ValueError) as error:
                raise PolicyError(
                    f"{name} fails: {error}",
                    where=case.kind,
                    remedy="A shard of a small batch may be empty, and so may a sentence",
                ) from error
            for value, shape in zip(values, method.shapes, strict=True):
                case.shape(name, value, *shape)
            _check_zero(case, name, values)


def _methods(policy: Any, tokens: Tensor, valid: Tensor, uniforms: Tensor) -> Iterator[_Method]:
    """The methods that the policy has."""
    drawn, single = uniforms.shape, uniforms.shape[1:]  # [K, B, 2, N] and [B, 2, N]
    none = torch.zeros_like(uniforms, dtype=torch.bool)
    yield _Method("threshold", lambda: [policy.threshold(tokens, valid)], [single])
    yield _Method("probabilities", lambda: [policy.probabilities(tokens, valid)], [single])
    yield _Method("sample", lambda: policy.sample(tokens, valid, uniforms), [drawn, drawn])
    if isinstance(policy, StochasticPolicy):
        yield _Method("evaluate", lambda: policy.evaluate(tokens, valid, none), [drawn, single[:1]])
    if isinstance(policy, FactorisedPolicy):
        # Logits are arbitrary on padding, and there is nothing but padding here.
        yield _Method(
            "logits",
            lambda: [policy.logits(tokens, valid).where(valid[:, None], 0).expand(single)],
            [single],
        )
    if isinstance(policy, RelaxedPolicy):
        yield _Method("gates", lambda: [policy.gates(tokens, valid, uniforms)], [drawn])


def _check_zero(case: Case, name: str, values: Sequence[Tensor]) -> None:
    for value in values:
        case.require(
            not value.detach().any(),  # NaN counts as nonzero
            f"{name} is not 0",
            "Mask by valid before dividing, and divide by at least 1",
        )
    total = torch.stack([value.sum().double() for value in values]).sum()
    if not total.requires_grad:
        return
    found = torch.autograd.grad(total, list(case.policy.parameters()), allow_unused=True)
    case.require(
        all(bool(torch.isfinite(gradient).all()) for gradient in found if gradient is not None),
        f"{name} gives a gradient that is not finite",
        "Mask before dividing or taking logs: 0 times infinity is NaN",
    )
