"""Contract tests that anybody can run on an encoder of their own.

    from rss_rl.testing import check_encoder
    check_encoder(MY_ENCODER, inputs=8)

Legend: M sentences, N tokens, E embedding size.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rss_rl.components import Component
from rss_rl.errors import ConfigError, EncoderError
from rss_rl.models.encoders.protocol import EncoderSetup, GatedEncoder, TrainingLengths
from rss_rl.models.sentences import remove_unselected
from rss_rl.ops.gated import union
from rss_rl.types import ROLES

_LENGTHS = (5, 1, 0, 3, 7)
_SEEDS = range(3)
_ROUNDING = 1e-9  # in float64
_PADDING = 3


def check_encoder(
    encoder: Component | nn.Module,
    inputs: int,
    *,
    options: Mapping[str, Any] | None = None,
    hidden: int = 4,
) -> None:
    """Check all that a run relies on, of each capability that the encoder declares.

    The vector of a sentence alone is that in a padded batch, and nothing on padding reaches it; a
    sentence without a token, or none selected, gives zeros; every parameter gets gradient; no
    argument is changed; in evaluation mode equal inputs give equal vectors; its copy by pickle, and
    another one that loads its state_dict, give its vectors. With `gates`, gates of 0 and 1 give
    what that selection gives. With `kept_only`, what stands at unselected words is irrelevant to
    the bit. Of a component also: equal seeds give equal weights, and its context layer keeps the
    same promises. Takes a second.

    Args:
        encoder: a component of kind `encoder`, of which everything is checked, or a module in place
            of one, whose weights do not change.
        inputs: E, the size of embeddings that it reads.
        options: of the component, where they are not to be its defaults.
        hidden: D of the setup that the component is given.

    Raises:
        EncoderError: the first promise that it breaks, with what to do about it.
        ConfigError: it is no encoder, or it refuses the options.
    """
    if isinstance(encoder, Component):
        _check_component(encoder, inputs, options or {}, hidden)
        return
    if not (isinstance(encoder, nn.Module) and hasattr(encoder, "output_size")):
        raise ConfigError(
            f"{type(encoder).__name__} is no encoder: neither a component nor a module with"
            " output_size and reads_unselected",
            where="check_encoder",
            remedy="See rss_rl.models.encoders.protocol",
        )
    kept_only = not encoder.reads_unselected
    _check_module(
        encoder, type(encoder).__name__, inputs, isinstance(encoder, GatedEncoder), kept_only
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
    _require(
        isinstance(first, nn.Module), name, "build returns no torch module", "Return an nn.Module"
    )
    for (label, one), other in zip(
        first.state_dict().items(), second.state_dict().values(), strict=True
    ):
        _require(
            torch.equal(one, other),
            name,
            f"equal seeds give other weights in '{label}'",
            "Draw weights from torch's global generator alone",
        )
    gates = component.can("gates", options)
    _require(
        isinstance(first, GatedEncoder) or not gates,
        name,
        "declares `gates` and has no method gated",
        "See GatedEncoder, or do not declare it",
    )
    _check_module(first, name, inputs, gates, component.can("kept_only", options), build)
    context = getattr(component, "context", None)
    if context is not None:
        _check_context(context(setup, options), name, inputs)


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


def _check_module(
    module: Any,
    name: str,
    inputs: int,
    gates: bool,
    kept_only: bool,
    build: Callable[[], Any] | None = None,
) -> None:
    encoder = _pickled(module, name).double().eval()
    for seed in _SEEDS:
        batch = _Batch(inputs, seed)
        _check_vectors(encoder, name, batch)
        _check_alone(encoder, name, batch)
        _check_empty(encoder, name, batch)
        if kept_only:
            _check_kept_only(encoder, name, batch)
        if gates:
            _check_gates(encoder, name, batch)
        _check_copies(encoder, name, batch, build)
    _check_gradients(encoder, name, _Batch(inputs, seed=7))


def _vectors(encoder: Any, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
    """As a classifier asks for them: unselected tokens are removed unless they are read."""
    if not encoder.reads_unselected:
        places = torch.arange(valid.shape[1]).expand_as(valid)
        index, valid, selection = remove_unselected(places, valid, selection)
        embedded = embedded.gather(1, index[..., None].expand(-1, -1, embedded.shape[-1]))
    return encoder(embedded, valid, selection)  # type: ignore[no-any-return]


def _check_vectors(encoder: Any, name: str, batch: _Batch) -> None:
    embedded, valid = batch.embedded.clone(), batch.valid.clone()
    for selection in (batch.everything, batch.selection):
        once = _vectors(encoder, embedded, valid, selection)
        wanted = (len(_LENGTHS), encoder.output_size)
        _require(
            tuple(once.shape) == wanted,
            name,
            f"vectors have the shape {tuple(once.shape)}, not {wanted}",
            "Return [M, output_size]",
        )
        _require(torch.isfinite(once).all(), name, "a vector is not finite", _MASK)
        again = _vectors(encoder, embedded, valid, selection)
        _require(
            torch.equal(once, again),
            name,
            "equal inputs give other vectors in evaluation mode",
            "Draw nothing where `self.training` is false",
        )
    _require(
        torch.equal(embedded, batch.embedded) and torch.equal(valid, batch.valid),
        name,
        "it changed its arguments",
        "Work on a copy",
    )


def _check_alone(encoder: Any, name: str, batch: _Batch) -> None:
    for selection in (batch.everything, batch.selection):
        together = _vectors(encoder, batch.embedded, batch.valid, selection)
        padding = torch.where(batch.valid[..., None], batch.embedded, batch.other)
        _require(
            _close(together, _vectors(encoder, padding, batch.valid, selection)),
            name,
            "what stands on padding reaches a vector",
            _MASK,
        )
        for row, length in enumerate(_LENGTHS):
            one = slice(row, row + 1)
            alone = _vectors(
                encoder,
                batch.embedded[one, :length],
                batch.valid[one, :length],
                selection[one, :, :length],
            )
            _require(
                _close(alone, together[one]),
                name,
                f"the vector of a sentence of {length} tokens depends on the batch around it",
                _MASK,
            )


def _check_empty(encoder: Any, name: str, batch: _Batch) -> None:
    nothing = torch.zeros_like(batch.selection)
    found = _vectors(encoder, batch.embedded, batch.valid, batch.everything)
    _require(
        not found[_LENGTHS.index(0)].any(),
        name,
        "a sentence without a token does not give zeros",
        "Multiply vectors by valid.any(1)",
    )
    _require(
        torch.isfinite(_vectors(encoder, batch.embedded, batch.valid, nothing)).all(),
        name,
        "without a selected token a vector is not finite",
        _MASK,
    )
    if not encoder.reads_unselected:
        removed = _vectors(encoder, batch.embedded, batch.valid, nothing)
        _require(
            not removed.any(),
            name,
            "a sentence without a selected token does not give zeros",
            "Multiply vectors by valid.any(1)",
        )
    nobody = _vectors(encoder, batch.embedded[:0], batch.valid[:0], batch.selection[:0])
    _require(
        tuple(nobody.shape) == (0, encoder.output_size),
        name,
        "a batch without a sentence does not give [0, output_size]",
        "Let every shape follow from the inputs",
    )


def _check_kept_only(encoder: Any, name: str, batch: _Batch) -> None:
    kept = union(batch.selection.double()).bool()[..., None]
    changed = torch.where(kept, batch.embedded, batch.other)
    _require(
        torch.equal(
            _vectors(encoder, batch.embedded, batch.valid, batch.selection),
            _vectors(encoder, changed, batch.valid, batch.selection),
        ),
        name,
        "declares `kept_only`, and an unselected word changes a vector",
        "Set reads_unselected to False, so that unselected words are removed before it",
    )


def _check_gates(encoder: Any, name: str, batch: _Batch) -> None:
    for selection in (batch.everything, batch.selection):
        gates = selection.double().requires_grad_()
        found = encoder.gated(batch.embedded, batch.valid, gates)
        _require(
            _close(found, _vectors(encoder, batch.embedded, batch.valid, selection)),
            name,
            "gates of 0 and 1 do not give what that selection gives",
            "Multiply attention weights by the gates of dependents, pooling weights by those of"
            " heads, and divide by their sums",
        )
        (slope,) = torch.autograd.grad(_weighed(found), gates)
        _require(
            torch.isfinite(slope).all() and slope.any(),
            name,
            "gates get no finite gradient",
            "Let the vector depend on them differentiably, at 0 and 1, too",
        )


def _check_copies(encoder: Any, name: str, batch: _Batch, build: Callable[[], Any] | None) -> None:
    at = batch.embedded, batch.valid, batch.selection
    copies = {"pickled copy": _pickled(encoder, name)}
    if build is not None:
        fresh = build().double().eval()
        for parameter in fresh.parameters():
            parameter.data.add_(1)
        try:
            fresh.load_state_dict(encoder.state_dict())
        except RuntimeError as error:
            raise EncoderError(f"its state_dict does not load: {error}", where=name) from error
        copies["copy by state_dict"] = fresh
    for what, copy in copies.items():
        _require(
            torch.equal(_vectors(copy, *at), _vectors(encoder, *at)),
            name,
            f"its {what} gives other vectors",
            "Keep what it needs in parameters and persistent buffers",
        )


def _check_gradients(encoder: Any, name: str, batch: _Batch) -> None:
    """Through a random point: at the first weights, zeros can hide what they multiply."""
    copy = _pickled(encoder, name)
    draw = torch.Generator().manual_seed(3)
    for parameter in copy.parameters():
        noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        parameter.data.copy_(0.6 * noise)
    embedded = batch.embedded.requires_grad_()
    parameters = dict(copy.named_parameters())
    vectors = _vectors(copy, embedded, batch.valid, batch.everything)
    found = torch.autograd.grad(
        _weighed(vectors), [embedded, *parameters.values()], allow_unused=True
    )
    for label, slope in zip(("embeddings", *parameters), found, strict=True):
        _require(
            slope is not None and torch.isfinite(slope).all() and slope.any(),
            name,
            f"no finite gradient reaches {label}",
            "Detach nothing, and keep no parameter that is not used",
        )


def _check_context(layer: Any, name: str, inputs: int) -> None:
    """The layer over a sequence of sentences: as the encoder, at every position."""
    layer = _pickled(layer, name).double().eval()
    batch = _Batch(inputs, seed=5)
    together = layer(batch.embedded, batch.valid)
    wanted = (*batch.valid.shape, layer.output_size)
    _require(
        tuple(together.shape) == wanted,
        name,
        f"its context layer returns the shape {tuple(together.shape)}, not {wanted}",
        "Return [M, N, output_size]",
    )
    for row, length in enumerate(_LENGTHS):
        alone = layer(batch.embedded[row : row + 1, :length], batch.valid[row : row + 1, :length])
        _require(
            _close(alone[0], together[row, :length]),
            name,
            f"its context layer's output for {length} positions depends on the padding around them",
            _MASK,
        )


def _pickled(module: Any, name: str) -> Any:
    """Its copy, as it crosses processes."""
    try:
        return pickle.loads(pickle.dumps(module))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise EncoderError(
            f"it cannot be pickled: {error}",
            where=name,
            remedy="Keep lambdas, local classes and open files out of its attributes",
        ) from error


_MASK = "Look at valid tokens alone: mask sums, means, maxima, softmaxes and recurrences"


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING)


def _weighed(vectors: Tensor) -> Tensor:
    """A sum in which every feature has a weight of its own."""
    return (vectors * torch.arange(1.0, vectors.shape[1] + 1)).sin().sum()


def _require(holds: bool | Tensor, name: str, what: str, remedy: str) -> None:
    """Raise unless a promise holds."""
    if not bool(holds):
        raise EncoderError(what, where=name, remedy=remedy)
