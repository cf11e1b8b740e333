"""A padded batch for a policy's contract tests, with checks of tensors.

Legend: K samples, B sentences, N tokens, E embedding size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rss_rl.errors import PolicyError
from rss_rl.policies.adapters import PolicyModule
from rss_rl.policies.protocol import reads_ends
from rss_rl.promises import Promises
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES

_LENGTHS, _SAMPLES, _IDS = (5, 1, 0, 3), 3, 12
VOCABULARY = ("<pad>", "<unk>", "the", "film", "is", "not", "good", ".", "of", "it", "bad", "was")
"""Words of the ids."""


class Case(Promises):
    """A policy, a padded batch for it, and checks."""

    def __init__(
        self,
        policy: PolicyModule,
        kind: str,
        inputs: int,
        seed: int,
        lengths: tuple[int, ...] = _LENGTHS,
    ) -> None:
        super().__init__(PolicyError, kind)
        self.policy, self.kind, self.lengths, self.inputs = policy, kind, lengths, inputs
        draw = torch.Generator().manual_seed(seed)
        width = max(lengths)
        self.valid = torch.arange(width) < torch.tensor(lengths)[:, None]
        ids = torch.randint(2, _IDS, self.valid.shape, generator=draw) * self.valid
        vectors = torch.randn(*self.valid.shape, inputs, generator=draw) * self.valid[..., None]
        if reads_ends(policy):  # at random, so that texts have several sentences
            ends = torch.randint(2, (*ids.shape, 1), generator=draw)
            vectors = torch.cat([vectors, ends.to(vectors.dtype)], -1)
        self.tokens = vectors
        self.uniforms = self.draw(_SAMPLES, seed)

    def draw(self, samples: int, seed: int) -> Tensor:
        """Uniform numbers of `samples` selections, [K, B, 2, N]."""
        rows, width = torch.arange(len(self.lengths)).numpy(), self.valid.shape[1]
        key = stream_key(seed, "check_policy")
        return torch.from_numpy(keyed_uniforms(key, rows, samples, ROLES, width))

    def shape(self, name: str, value: Tensor, *shape: int) -> None:
        """Raise unless a tensor has the shape."""
        self.require(
            tuple(value.shape) == shape,
            f"{name} has the shape {tuple(value.shape)}, not {shape}",
            "See rss_rl.policies.protocol for the shapes",
        )

    def selection(self, name: str, value: Tensor, *leading: int) -> None:
        """Raise unless it is a selection of real tokens."""
        self.shape(name, value, *leading, ROLES, self.valid.shape[1])
        self.require(
            value.dtype == torch.bool, f"{name} is {value.dtype}, not bool", "Return a bool tensor"
        )
        self.require(
            not (value & ~self.valid[:, None]).any(), f"{name} selects padding", "& valid[:, None]"
        )

    def twice(self, name: str, call: Callable[[], Tensor]) -> Tensor:
        """The result of a call, after checking that two calls agree."""
        first, second = call(), call()
        self.require(
            torch.equal(first, second),
            f"{name} differs between two calls with equal arguments",
            "Take all randomness from `uniforms`, and keep no state",
        )
        return first

    def unit(self, name: str, value: Tensor) -> None:
        """Raise unless all values are in [0, 1], and 0 on padding."""
        within = torch.isfinite(value).all() and value.min() >= 0 and value.max() <= 1
        self.require(within, f"{name} leave [0, 1]", "Use a sigmoid, or clamp them")
        self.zero_on_padding(name, value)

    def zero_on_padding(self, name: str, value: Tensor) -> None:
        """Raise unless it is 0 on padding."""
        self.require(
            not (value * ~self.valid[:, None]).any(),
            f"{name} on padding is not 0",
            "Multiply by valid[:, None]",
        )

    def gradient(self, name: str, total: Tensor) -> None:
        """Raise unless every parameter gets a finite gradient."""
        named = dict(self.policy.named_parameters())
        remedy = "Drop unused parameters, do not detach, and mask before dividing or taking logs"
        self.require(
            total.requires_grad, f"{name} give no gradient to any parameter", "Do not detach"
        )
        found = torch.autograd.grad(
            total, list(named.values()), allow_unused=True, retain_graph=True
        )
        for key, value in zip(named, found, strict=True):
            self.require(value is not None, f"{name} give no gradient to '{key}'", remedy)
            assert value is not None
            self.require(
                torch.isfinite(value).all(), f"{name} give a non-finite gradient to '{key}'", remedy
            )
