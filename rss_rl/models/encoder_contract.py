"""Contract tests for custom encoders.

    from rss_rl.testing import check_encoder
    check_encoder(MY_ENCODER, inputs=8)

Legend: M sentences, N tokens, E embedding size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rss_rl.components import Component
from rss_rl.errors import ConfigError, EncoderError
from rss_rl.models.encoders.protocol import EncoderSetup, GatedEncoder, TrainingLengths
from rss_rl.models.sentences import remove_unselected
from rss_rl.ops.gated import union
from rss_rl.promises import Promises
from rss_rl.types import ROLES

_LENGTHS = (5, 1, 0, 3, 7)
_SEEDS = range(3)
_ROUNDING = 1e-9  # in float64
_PADDING = 3
_MASK = "Read only valid tokens: mask sums, means, maxima, softmaxes and recurrences"


def check_encoder(
    encoder: Component | nn.Module,
    inputs: int,
    *,
    options: Mapping[str, Any] | None = None,
    hidden: int = 4,
) -> None:
    """Check all that a run relies on, for each capability that the encoder declares.

    A sentence has the same vector alone and in a padded batch, whatever the padding; a sentence
    without tokens, or without selected ones, gives zeros; every parameter gets a gradient;
    arguments are not changed; in evaluation mode equal inputs give equal vectors, as do a pickled
    copy and one that loads the state_dict. With `gates`, gates of 0 and 1 give the vectors of that
    selection. With `kept_only`, unselected words do not change a bit. For a component also: equal
    seeds give equal weights, and its context layer keeps the same promises. Takes a second.

    Args:
        encoder: a component of kind `encoder`, of which everything is checked, or a module, whose
            weights are not changed.
        inputs: E, the size of embeddings that it reads.
        options: of the component, if not its defaults.
        hidden: D of the component's setup.

    Raises:
        EncoderError: the first broken promise, with a remedy.
        ConfigError: not an encoder, or invalid options.
    """
    if isinstance(encoder, Component):
        _check_component(encoder, inputs, options or {}, hidden)
        return
    if not (isinstance(encoder, nn.Module) and hasattr(encoder, "output_size")):
        raise ConfigError(
            f"{type(encoder).__name__} is not an encoder: neither a component nor a module with"
            " output_size and reads_unselected",
            where="check_encoder",
            remedy="See rss_rl.models.encoders.protocol",
        )
    kept_only = not encoder.reads_unselected
    _Checked(encoder, type(encoder).__name__).check(
        inputs, isinstance(encoder, GatedEncoder), kept_only
    )


def _check_component(
    component: Component, inputs: int, given: Mapping[str, Any], hidden: int
) -> None:
    name = component.name
    if component.kind != "encoder":
        raise ConfigError(f"a component of kind {component.kind}, not encoder", where=name)
    options = component.parse(given)
    setup = EncoderSetup(inputs, hidden, lengths=TrainingLengths(((4.0, 2.0),), 8))

    def build() -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return component.build(setup, options)

    first, second = build(), build()
    promises = Promises(EncoderError, name)
    promises.require(
        isinstance(first, nn.Module), "build returns no torch module", "Return an nn.Module"
    )
    for (label, one), other in zip(
        first.state_dict().items(), second.state_dict().values(), strict=True
    ):
        promises.require(
            torch.equal(one, other),
            f"equal seeds give other weights in '{label}'",
            "Draw weights only from torch's global generator",
        )
    gates = component.can("gates", options)
    promises.require(
        isinstance(first, GatedEncoder) or not gates,
        "declares `gates` and has no method gated",
        "See GatedEncoder, or do not declare it",
    )
    _Checked(first, name).check(inputs, gates, component.can("kept_only", options), build)
    context = getattr(component, "context", None)
    if context is not None:
        _check_context(context(setup, options), promises, inputs)


class _Batch:
    """A padded batch in float64, with garbage on the padding."""

    def __init__(self, inputs: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        shape = len(_LENGTHS), max(_LENGTHS) + _PADDING
        self.valid = torch.arange(shape[1]) < torch.tensor(_LENGTHS)[:, None]
        self.embedded = torch.randn(*shape, inputs, generator=draw, dtype=torch.float64)
        self.other = torch.randn(*shape, inputs, generator=draw, dtype=torch.float64)
        bits = torch.rand(shape[0], ROLES, shape[1], generator=draw) < 0.5
        self.selection = bits & self.valid[:, None]
        self.everything = self.valid[:, None].expand(-1, ROLES, -1)
        self.selections = self.everything, self.selection


class _Checked(Promises):
    """An encoder under test, with the checks."""

    def __init__(self, module: Any, name: str) -> None:
        super().__init__(EncoderError, name)
        self._encoder = self.pickled(module).double().eval()

    def check(
        self,
        inputs: int,
        gates: bool,
        kept_only: bool,
        build: Callable[[], Any] | None = None,
    ) -> None:
        """All checks that apply to components and modules."""
        for seed in _SEEDS:
            batch = _Batch(inputs, seed)
            self._check_vectors(batch)
            self._check_alone(batch)
            self._check_empty(batch)
            if kept_only:
                self._check_kept_only(batch)
            if gates:
                self._check_gates(batch)
            self._check_copies(batch, build)
        self._check_gradients(_Batch(inputs, seed=7))

    def _vectors(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        return _vectors(self._encoder, embedded, valid, selection)

    def _check_vectors(self, batch: _Batch) -> None:
        embedded, valid = batch.embedded.clone(), batch.valid.clone()
        wanted = (len(_LENGTHS), self._encoder.output_size)
        for selection in batch.selections:
            once = self._vectors(embedded, valid, selection)
            self.require(
                tuple(once.shape) == wanted,
                f"vectors have the shape {tuple(once.shape)}, not {wanted}",
                "Return [M, output_size]",
            )
            self.require(torch.isfinite(once).all(), "a vector is not finite", _MASK)
            self.require(
                torch.equal(once, self._vectors(embedded, valid, selection)),
                "equal inputs give other vectors in evaluation mode",
                "Draw nothing where `self.training` is false",
            )
        unchanged = torch.equal(embedded, batch.embedded) and torch.equal(valid, batch.valid)
        self.require(unchanged, "it changed its arguments", "Work on a copy")

    def _check_alone(self, batch: _Batch) -> None:
        padding = torch.where(batch.valid[..., None], batch.embedded, batch.other)
        for selection in batch.selections:
            together = self._vectors(batch.embedded, batch.valid, selection)
            same = _close(together, self._vectors(padding, batch.valid, selection))
            self.require(same, "values on padding reach a vector", _MASK)
            for row, length in enumerate(_LENGTHS):
                one = slice(row, row + 1)
                parts = batch.embedded[one, :length], batch.valid[one, :length]
                alone = self._vectors(*parts, selection[one, :, :length])
                self.require(
                    _close(alone, together[one]),
                    f"the vector of a sentence of {length} tokens depends on the batch around it",
                    _MASK,
                )

    def _check_empty(self, batch: _Batch) -> None:
        found = self._vectors(batch.embedded, batch.valid, batch.everything)
        none = self._vectors(batch.embedded, batch.valid, torch.zeros_like(batch.selection))
        what, remedy = "does not give zeros", "Multiply vectors by valid.any(1)"
        empty = not found[_LENGTHS.index(0)].any()
        self.require(empty, f"a sentence without a token {what}", remedy)
        finite = torch.isfinite(none).all()
        self.require(finite, "without a selected token a vector is not finite", _MASK)
        self.require(
            self._encoder.reads_unselected or not none.any(),
            f"a sentence without a selected token {what}",
            remedy,
        )
        no_rows = self._vectors(batch.embedded[:0], batch.valid[:0], batch.selection[:0])
        self.require(
            tuple(no_rows.shape) == (0, self._encoder.output_size),
            "an empty batch does not give [0, output_size]",
            "Derive every shape from the inputs",
        )

    def _check_kept_only(self, batch: _Batch) -> None:
        kept = union(batch.selection.double()).bool()[..., None]
        both = (
            self._vectors(embedded, batch.valid, batch.selection)
            for embedded in (batch.embedded, torch.where(kept, batch.embedded, batch.other))
        )
        self.require(
            torch.equal(*both),
            "declares `kept_only`, and an unselected word changes a vector",
            "Set reads_unselected to False, so that unselected words are removed before it",
        )

    def _check_gates(self, batch: _Batch) -> None:
        for selection in batch.selections:
            gates = selection.double().requires_grad_()
            found = self._encoder.gated(batch.embedded, batch.valid, gates)
            self.require(
                _close(found, self._vectors(batch.embedded, batch.valid, selection)),
                "gates of 0 and 1 do not give what that selection gives",
                "Multiply attention weights by the gates of dependents, pooling weights by those of"
                " heads, and divide by their sums",
            )
            (slope,) = torch.autograd.grad(_weighed(found), gates)
            self.require(
                torch.isfinite(slope).all() and slope.any(),
                "gates get no finite gradient",
                "Make the vector differentiable in the gates, at 0 and 1 too",
            )

    def _check_copies(self, batch: _Batch, build: Callable[[], Any] | None) -> None:
        at = batch.embedded, batch.valid, batch.selection
        copies = {"pickled copy": self.pickled(self._encoder)}
        if build is not None:
            fresh = build().double().eval()
            for parameter in fresh.parameters():
                parameter.data.add_(1)
            try:
                fresh.load_state_dict(self._encoder.state_dict())
            except RuntimeError as error:
                self.require(False, f"its state_dict does not load: {error}", "")
            copies["copy by state_dict"] = fresh
        for what, copy in copies.items():
            self.require(
                torch.equal(_vectors(copy, *at), self._vectors(*at)),
                f"its {what} gives other vectors",
                "Keep what it needs in parameters and persistent buffers",
            )

    def _check_gradients(self, batch: _Batch) -> None:
        """At random weights: initial zeros can hide what they multiply."""
        copy = self.pickled(self._encoder)
        draw = torch.Generator().manual_seed(3)
        for parameter in copy.parameters():
            noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            parameter.data.copy_(0.6 * noise)
        leaves = {"embeddings": batch.embedded.requires_grad_(), **dict(copy.named_parameters())}
        total = _weighed(_vectors(copy, batch.embedded, batch.valid, batch.everything))
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        for label, slope in zip(leaves, found, strict=True):
            self.require(
                slope is not None and torch.isfinite(slope).all() and slope.any(),
                f"no finite gradient reaches {label}",
                "Do not detach, and remove unused parameters",
            )


def _vectors(encoder: Any, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
    """As a classifier calls it: unselected tokens are removed unless the encoder reads them."""
    if not encoder.reads_unselected:
        positions = torch.arange(valid.shape[1]).expand_as(valid)
        index, valid, selection = remove_unselected(positions, valid, selection)
        embedded = embedded.gather(1, index[..., None].expand(-1, -1, embedded.shape[-1]))
    return encoder(embedded, valid, selection)  # type: ignore[no-any-return]


def _check_context(layer: Any, promises: Promises, inputs: int) -> None:
    """Check the layer over a sequence of sentences like the encoder, at every position."""
    layer = promises.pickled(layer).double().eval()
    batch = _Batch(inputs, seed=5)
    together = layer(batch.embedded, batch.valid)
    wanted = (*batch.valid.shape, layer.output_size)
    promises.require(
        tuple(together.shape) == wanted,
        f"its context layer returns the shape {tuple(together.shape)}, not {wanted}",
        "Return [M, N, output_size]",
    )
    for row, length in enumerate(_LENGTHS):
        alone = layer(batch.embedded[row : row + 1, :length], batch.valid[row : row + 1, :length])
        promises.require(
            _close(alone[0], together[row, :length]),
            f"its context layer's output for {length} positions depends on the padding around them",
            _MASK,
        )


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING)


def _weighed(vectors: Tensor) -> Tensor:
    """A sum in which every feature has a different weight."""
    return (vectors * torch.arange(1.0, vectors.shape[1] + 1)).sin().sum()
