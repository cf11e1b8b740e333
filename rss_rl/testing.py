"""Checks for policies, encoders and reward models of your own: what a run relies on.

    from rss_rl.testing import check_policy
    check_policy(MY_POLICY, inputs=8, options={"scale": 2.0})

Legend: K samples, B sentences, M sentences or scored selections, N tokens, E embedding size.
"""

from __future__ import annotations

__all__ = ["check_encoder", "check_policy", "check_reward_model"]

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rss_rl.components import Component, Kind
from rss_rl.config import ModelConfig
from rss_rl.errors import ComponentError, ConfigError
from rss_rl.models.build import build_classifier
from rss_rl.models.dropout import drawing, evaluating
from rss_rl.models.encoders.protocol import EncoderSetup, GatedEncoder, TrainingLengths
from rss_rl.models.sentences import remove_unselected
from rss_rl.ops.gated import union
from rss_rl.policies.build import check_distribution, check_module
from rss_rl.policies.distributions import Certain
from rss_rl.policies.protocol import Policy, PolicySetup, bits_per_token, reads_ends
from rss_rl.reward_models.protocol import LogitsReward, RewardSetup, named_scores
from rss_rl.types import ROLES, Array, Batch, LabelSpec

VOCABULARY = ("<pad>", "<unk>", "the", "film", "is", "not", "good", ".", "of", "it", "bad", "was")
"""Words of the ids that policies and reward models read."""
_LENGTHS = (5, 1, 0, 3, 7)
_SEEDS = range(3)
_DRAWS, _LARGEST_Z = 20_000, 6.0
_MASK = "Read only real tokens: mask sums, means, maxima, softmaxes and recurrences"
_CLASSES = LabelSpec("classes", ("no", "yes"))


class _Promises:
    """Raises a `ComponentError` where what is called `name` breaks a promise."""

    def __init__(self, name: str) -> None:
        self.name = name

    def require(self, holds: object, what: str, remedy: str) -> None:
        """Raise an error with `what` and `remedy` unless `holds`."""
        if not bool(holds):
            raise ComponentError(what, where=self.name, remedy=remedy)

    def shape(self, what: str, value: Tensor, *shape: int) -> None:
        """Raise unless a tensor has the shape and is finite."""
        found = tuple(value.shape)
        remedy = "See its Protocol for the shapes"
        self.require(found == shape, f"{what} has the shape {found}, not {shape}", remedy)
        self.require(torch.isfinite(value).all(), f"{what} is not finite", _MASK)

    def gradients(
        self, what: str, total: Tensor, leaves: Mapping[str, Tensor], *, nonzero: bool = False
    ) -> None:
        """Raise unless every leaf gets a finite gradient, and if asked one that is not 0."""
        self.require(total.requires_grad, f"{what} gives no gradient", "Do not detach")
        found = torch.autograd.grad(
            total, list(leaves.values()), allow_unused=True, retain_graph=True
        )
        for name, slope in zip(leaves, found, strict=True):
            self.require(
                slope is not None and torch.isfinite(slope).all() and (slope.any() or not nonzero),
                f"{what} gives no finite gradient to '{name}'",
                "Do not detach, drop unused parameters, and mask before dividing or taking logs",
            )

    def pickled(self, thing: Any) -> Any:
        """A copy of `thing`, pickled and loaded."""
        try:
            return pickle.loads(pickle.dumps(thing))
        except Exception as error:  # its __reduce__ may raise anything
            remedy = "Keep lambdas, local classes and open files out of its attributes"
            self.require(False, f"cannot be pickled: {error}", remedy)

    def copies(
        self, module: nn.Module, other: nn.Module | None, answer: Callable[[Any], Tensor]
    ) -> None:
        """Raise unless a pickled copy answers equally, and so does `other` with its state."""
        copies = {"pickled copy": self.pickled(module)}
        if other is not None:
            try:
                other.load_state_dict(module.state_dict())
            except RuntimeError as error:
                remedy = "Build the same parameters and buffers from the same options"
                self.require(False, f"its state cannot be loaded: {error}", remedy)
            copies["newly built copy with its state"] = other
        for what, made in copies.items():
            self.require(
                torch.equal(answer(made), answer(module)),
                f"its {what} gives another answer",
                "Keep what it needs in parameters, persistent buffers and attributes",
            )


def _of_kind(component: Component, kind: Kind) -> None:
    if component.kind != kind:
        raise ConfigError(
            f"'{component.name}' is a component of kind {component.kind}, not {kind}",
            where=f"check_{kind}",
        )


# Policies


def check_policy(
    policy: nn.Module | Component, inputs: int, options: Mapping[str, Any] | None = None
) -> None:
    """Check everything that a run relies on of a policy and of the distributions that it returns.

    Shapes and masks; log-probs against observed frequencies; a gradient for every parameter; equal
    selections for equal uniforms; pickling, saving and loading; unchanged buffers; a sentence alone
    and in a padded batch; empty sentences and an empty batch. In evaluation mode, in which a run
    selects. Takes a second or two.

    Args:
        policy: a component of kind policy, or a module as of `rss_rl.policies.protocol`.
        inputs: E, the embedding size that it reads.
        options: of the component; None: its defaults.

    Raises:
        ComponentError: the first broken promise, with a remedy.
        ConfigError: it is not a policy, or not as its component declares.
    """
    share, other, declared = False, None, None
    if isinstance(policy, Component):
        _of_kind(policy, "policy")
        name, parsed = policy.name, policy.parse(options or {})
        setup, declared = PolicySetup(inputs, "elu", VOCABULARY), policy.all_capabilities(parsed)
        whole, other = (check_module(policy.build(setup, parsed), name) for _ in range(2))
        share = policy.can("share", parsed)
    else:
        name, whole = type(policy).__name__, check_module(policy, "check_policy")
    promises = _Promises(name)
    with evaluating(whole):
        first = _Padded(whole, inputs, 0)
        found = whole(first.tokens, first.valid)
        check_distribution(found, declared, name)
        for seed in _SEEDS:
            _check_selections(whole, promises, _Padded(whole, inputs, seed), share=share)
        answer = first.tokens, first.valid, first.uniforms
        promises.copies(
            whole, other and other.eval(), lambda made: _answers(made, *answer)["sample"]
        )
        _check_buffers(whole, promises, first)
        if found.has_log_probs:
            _check_frequency(whole, promises, _Padded(whole, inputs, 7, (2, 1)))


class _Padded:
    """A padded batch as a policy reads it."""

    def __init__(
        self, policy: Policy, inputs: int, seed: int, lengths: Sequence[int] = _LENGTHS
    ) -> None:
        self.lengths, self.draw = lengths, torch.Generator().manual_seed(seed)
        width = max(lengths)
        self.valid = torch.arange(width) < torch.tensor(lengths)[:, None]
        features = inputs + reads_ends(policy)
        vectors = torch.randn(*self.valid.shape, features, generator=self.draw)
        if reads_ends(policy):
            vectors[..., -1] = (vectors[..., -1] > 0).float()
        self.tokens = vectors * self.valid[..., None]
        self.uniforms = self.uniform(3)

    def uniform(self, samples: int) -> Tensor:
        """Uniform numbers in (0, 1) of so many selections, [K, B, 2, N]."""
        shape = samples, len(self.lengths), ROLES, self.valid.shape[1]
        return torch.rand(shape, generator=self.draw).clamp(1e-6, 1 - 1e-6)


def _answers(
    policy: Policy,
    tokens: Tensor,
    valid: Tensor,
    uniforms: Tensor,
    selection: Tensor | None = None,
) -> dict[str, Tensor]:
    """What its distribution returns; `selection` is evaluated, by default none."""
    made = policy(tokens, valid)
    found = {"mode": made.mode, "probs": made.probs, "steered": made.steered}
    found["sample"], found["log_prob of sample"] = made.sample(uniforms)
    if made.has_log_probs:
        none = torch.zeros_like(uniforms, dtype=torch.bool)
        asked = none if selection is None else selection
        found["evaluate"], found["entropy"] = made.evaluate(asked)
    if made.has_rsample:
        found["rsample"] = made.rsample(uniforms)
    return found


def _check_selections(policy: Policy, promises: _Promises, batch: _Padded, *, share: bool) -> None:
    arguments = batch.tokens, batch.valid, batch.uniforms
    drawn = policy(batch.tokens, batch.valid).sample(batch.uniforms).selection
    found = _answers(policy, *arguments, drawn)
    count, width = batch.valid.shape
    shapes: dict[str, tuple[int, ...]] = {"entropy": (count,)}
    for name in ("sample", "log_prob of sample", "evaluate", "rsample"):
        shapes[name] = batch.uniforms.shape
    again = _answers(policy, *arguments, drawn)
    for name, value in found.items():
        promises.shape(name, value, *shapes.get(name, (count, ROLES, width)))
        real = batch.valid.any(1) if name == "entropy" else batch.valid[:, None]
        off = (value * ~real).any()
        promises.require(not off, f"{name} on padding is not 0", "Mask by valid[:, None]")
        promises.require(
            torch.equal(value, again[name]),
            f"{name} differs between two calls with equal arguments",
            "Take all randomness from `uniforms`, and keep no state",
        )
        if name in ("mode", "sample"):
            promises.require(
                value.dtype == torch.bool, f"{name} is no bool", "Return a bool tensor"
            )
        if name in ("probs", "rsample", "steered"):
            unit = value.min() >= 0 and value.max() <= 1
            promises.require(unit, f"{name} leave [0, 1]", "Use a sigmoid, or clamp them")
    promises.require(
        bits_per_token(policy) == ROLES or torch.equal(drawn[:, :, 0], drawn[:, :, 1]),
        "bits_per_token is 1, but the heads that sample selects differ from the dependents",
        f"Drop the attribute, or make it {ROLES}",
    )
    _check_agreement(policy, promises, batch, found, share=share)
    _check_alone(policy, promises, batch, found, drawn)


def _check_agreement(
    policy: Policy,
    promises: _Promises,
    batch: _Padded,
    found: Mapping[str, Tensor],
    *,
    share: bool,
) -> None:
    """What one method says agrees with what the others say, and teaches the parameters."""
    certain = isinstance(policy(batch.tokens, batch.valid), Certain)
    leaves = {} if certain else dict(policy.named_parameters())
    if "evaluate" in found:
        promises.require(
            torch.allclose(found["log_prob of sample"], found["evaluate"], atol=1e-5),
            "evaluate's log_prob differs from that of sample",
            "Both must be log p of the same bits: the learner compares them",
        )
        if leaves:  # separately, because at entropy cost 0 the entropy gets no gradient
            total = found["evaluate"].square().sum()
            promises.gradients("evaluate's log_prob", total, leaves)
            total = total + found["entropy"].sum()
            promises.gradients("evaluate's log_prob and entropy", total, leaves)
    if "rsample" in found:
        promises.require(
            torch.equal(found["rsample"] > 0, found["sample"]),
            "the nonzero gates are not the selection that sample draws",
            "A gate of exactly 0 is a token that is not selected",
        )
        weights = torch.linspace(1, 2, found["rsample"].numel()).view_as(found["rsample"])
        if leaves:
            promises.gradients("rsample", (found["rsample"] * weights).sum(), leaves)
    if share:
        rule = found["steered"]
        clear = (rule - 0.5).abs() > 1e-3
        promises.require(
            not ((found["mode"] != (rule > 0.5)) & clear).any(),
            "mode does not keep exactly the tokens with probability over one half",
            'Let it keep where probs > 0.5, or drop "share" from the capabilities',
        )


def _check_alone(
    policy: Policy,
    promises: _Promises,
    batch: _Padded,
    found: Mapping[str, Tensor],
    drawn: Tensor,
) -> None:
    """A sentence gets the same alone and in a padded batch, up to rounding; a learner's shard may
    have no example."""
    parts = [(slice(row, row + 1), length) for row, length in enumerate(batch.lengths)]
    for rows, length in (*parts, (slice(0, 0), max(batch.lengths))):
        what = f"a sentence of {length} tokens" if rows.stop else "a batch without a sentence"
        given = batch.tokens[rows, :length], batch.valid[rows, :length]
        bits = batch.uniforms[:, rows, :, :length], drawn[:, rows, :, :length]
        try:
            answers = _answers(policy, *given, *bits)
        except (RuntimeError, IndexError, ValueError) as error:
            promises.require(False, f"{what}: {error}", "Shards and sentences may be empty")
        for name, alone in answers.items():
            value = found[name]
            together = value[rows] if name == "entropy" else value[..., rows, :, :length]
            promises.shape(f"{name} of {what}", alone, *together.shape)
            promises.require(
                torch.allclose(alone.float(), together.float(), atol=1e-4),
                f"{name} of {what} depends on the padding around it",
                _MASK,
            )


def _check_buffers(policy: Policy, promises: _Promises, batch: _Padded) -> None:
    learning = copy.deepcopy(policy).train()
    _answers(learning, batch.tokens, batch.valid, batch.uniforms)
    for (name, buffer), before in zip(learning.named_buffers(), policy.buffers(), strict=True):
        promises.require(
            torch.equal(buffer, before),
            f"its buffer '{name}' changes in training mode",
            "Samplers receive parameters only: keep no running statistics, as batch"
            " normalisation does",
        )


def _check_frequency(policy: Policy, promises: _Promises, batch: _Padded) -> None:
    """exp(log_prob) of each sampled selection is its relative frequency."""
    with torch.no_grad():
        drawn = policy(batch.tokens, batch.valid).sample(batch.uniform(_DRAWS))
    for row in range(len(batch.lengths)):
        bits = drawn.selection[:, row].flatten(1).to(torch.uint8)
        log_prob = drawn.log_prob[:, row].sum((-1, -2))
        seen, which, counts = bits.unique(dim=0, return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
        chance = torch.zeros(len(seen)).scatter_(0, which, log_prob.exp().float())
        error = (chance * (1 - chance) / _DRAWS).clamp_min(1e-8).sqrt()
        worst = ((counts / _DRAWS - chance).abs() / error).max()
        promises.require(
            worst < _LARGEST_Z and chance.sum() < 1 + 1e-3,
            f"the log-prob of a selection does not match its frequency: {worst:.1f} standard errors"
            f" apart in {_DRAWS} draws",
            "log_prob must be that of the bits as `uniforms` decide them; a bit shared by both"
            " roles counts once",
        )


# Encoders


def check_encoder(
    encoder: Component,
    inputs: int,
    *,
    options: Mapping[str, Any] | None = None,
    hidden: int = 4,
) -> None:
    """Check all that a run relies on.

    A sentence has the same vector alone and in a padded batch, whatever the padding; a sentence
    without tokens, or without selected ones, gives zeros; every parameter gets a gradient; in
    evaluation mode equal inputs give equal vectors, as do a pickled copy and one that loads the
    state. Gates of 0 and 1 give the vectors of that selection. Unselected words do not change a
    bit, unless it reads them. Equal seeds give equal weights. Takes a second.

    Args:
        encoder: a component of kind `encoder`.
        inputs: E, the size of embeddings that it reads.
        options: of the component, if not its defaults.
        hidden: D of the component's setup.

    Raises:
        ComponentError: the first broken promise, with a remedy.
        ConfigError: not an encoder, or invalid options.
    """
    _of_kind(encoder, "encoder")
    promises, parsed = _Promises(encoder.name), encoder.parse(options or {})
    setup = EncoderSetup(inputs, hidden, lengths=TrainingLengths(((4.0, 2.0),), 8))
    first, second = (_seeded(encoder.build, setup, parsed) for _ in range(2))
    weights = second.state_dict()
    for name, one in first.state_dict().items():
        promises.require(
            torch.equal(one, weights[name]),
            f"equal seeds give other weights in '{name}'",
            "Draw weights only from torch's global generator",
        )
    gates = encoder.can("gates", parsed)
    promises.require(
        isinstance(first, GatedEncoder) or not gates,
        "declares `gates` and has no method gated",
        "See GatedEncoder, or do not declare it",
    )
    promises.require(
        not (encoder.can("kept_only", parsed) and first.reads_unselected),
        "declares `kept_only`, and reads_unselected is true",
        "Set it to False, so that unselected words are removed before it",
    )
    module, batch = promises.pickled(first).double().eval(), _Embedded(inputs, seed=0)
    for seed in _SEEDS:
        _check_vectors(module, promises, _Embedded(inputs, seed), gates=gates)
    promises.copies(module, second.double().eval(), batch.vectors)
    _check_slopes(module, promises, _Embedded(inputs, seed=7))


def _seeded(build: Callable[[Any, Any], Any], setup: Any, options: Any) -> Any:
    with drawing(0):
        return build(setup, options)


class _Embedded:
    """A padded batch in float64, with garbage on the padding."""

    def __init__(self, inputs: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        shape = len(_LENGTHS), max(_LENGTHS) + 3
        self.valid = torch.arange(shape[1]) < torch.tensor(_LENGTHS)[:, None]
        self.tokens = torch.randn(*shape, inputs, generator=draw, dtype=torch.float64)
        self.other = torch.randn(*shape, inputs, generator=draw, dtype=torch.float64)
        bits = torch.rand(shape[0], ROLES, shape[1], generator=draw) < 0.5
        self.selection = bits & self.valid[:, None]
        self.everything = self.valid[:, None].expand(-1, ROLES, -1)

    def vectors(
        self, encoder: Any, selection: Tensor | None = None, tokens: Tensor | None = None,
        rows: slice = slice(None), length: int | None = None,
    ) -> Tensor:  # fmt: skip
        """As a classifier calls it: unselected tokens are removed unless the encoder reads them."""
        chosen = (self.selection if selection is None else selection)[rows, :, :length]
        embedded = (self.tokens if tokens is None else tokens)[rows, :length]
        valid = self.valid[rows, :length]
        if not encoder.reads_unselected:
            positions = torch.arange(valid.shape[1]).expand_as(valid)
            index, valid, chosen = remove_unselected(positions, valid, chosen)
            embedded = embedded.gather(1, index[..., None].expand(-1, -1, embedded.shape[-1]))
        found: Tensor = encoder(embedded, valid, chosen)
        return found


def _check_vectors(module: Any, promises: _Promises, batch: _Embedded, *, gates: bool) -> None:
    padding = torch.where(batch.valid[..., None], batch.tokens, batch.other)
    for selection in (batch.everything, batch.selection):
        together = batch.vectors(module, selection)
        promises.shape("the sentences' vectors", together, len(_LENGTHS), module.output_size)
        promises.require(
            torch.equal(together, batch.vectors(module, selection)),
            "equal inputs give other vectors in evaluation mode",
            "Draw nothing where `self.training` is false, and do not change the arguments",
        )
        same = _close(together, batch.vectors(module, selection, padding))
        promises.require(same, "values on padding reach a vector", _MASK)
        for row, length in enumerate(_LENGTHS):
            one = slice(row, row + 1)
            promises.require(
                _close(batch.vectors(module, selection, rows=one, length=length), together[one]),
                f"the vector of a sentence of {length} tokens depends on the batch around it",
                _MASK,
            )
        if gates:
            given = selection.double().requires_grad_()
            found = module.gated(batch.tokens, batch.valid, given)
            promises.require(
                _close(found, together),
                "gates of 0 and 1 do not give what that selection gives",
                "Multiply attention weights by the gates of dependents, pooling weights by those of"
                " heads, and divide by their sums",
            )
            promises.gradients("a vector", _weighed(found), {"gates": given}, nonzero=True)
    empty = batch.vectors(module, batch.everything)[_LENGTHS.index(0)]
    promises.require(not empty.any(), "a sentence without a token does not give zeros", _MASK)
    none = batch.vectors(module, torch.zeros_like(batch.selection))
    promises.shape("without a selected token a vector", none, len(_LENGTHS), module.output_size)
    no_rows = batch.vectors(module, rows=slice(0, 0))
    promises.shape("the vectors of an empty batch", no_rows, 0, module.output_size)
    if not module.reads_unselected:
        promises.require(
            not none.any(), "a sentence without a selected token does not give zeros", _MASK
        )
        kept = union(batch.selection.double()).bool()[..., None]
        changed = batch.vectors(module, tokens=torch.where(kept, batch.tokens, batch.other))
        promises.require(
            torch.equal(changed, batch.vectors(module)),
            "an unselected word changes a vector",
            "Read only the tokens that it is given, or set reads_unselected",
        )


def _check_slopes(module: nn.Module, promises: _Promises, batch: _Embedded) -> None:
    """At random weights: initial zeros can hide what they multiply."""
    draw = torch.Generator().manual_seed(3)
    made = copy.deepcopy(module)
    for parameter in made.parameters():
        noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        parameter.data.copy_(0.6 * noise)
    leaves = {"embeddings": batch.tokens.requires_grad_(), **dict(made.named_parameters())}
    total = _weighed(batch.vectors(made, batch.everything))
    promises.gradients("a vector", total, leaves, nonzero=True)


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-9, atol=1e-9)


def _weighed(vectors: Tensor) -> Tensor:
    """A sum in which every feature has a different weight."""
    return (vectors * torch.arange(1.0, vectors.shape[1] + 1)).sin().sum()


# Reward models


def check_reward_model(
    model: Any,
    *,
    labels: LabelSpec = _CLASSES,
    sentences: int = 1,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Check all that a run relies on: one finite, reproducible number for each selection, the same
    alone and in a batch; unchanged arguments; pickling. For one that scores with the
    classifier also that dropout is off, that the classifier's mode is restored, and that
    `score_logits` agrees with `score`.

    Args:
        model: a component of kind `reward_model`, an object with `score`, or a function.
        labels, sentences: of a task that it supports; labels are classes or a score.
        options: of the component.

    Raises:
        ComponentError: the first broken promise, with a remedy.
        ConfigError: invalid options, or the component refuses the task.
    """
    if labels.chooses:
        raise ConfigError("labels are classes or a score here", where="check_reward_model")
    classifier = None
    if isinstance(model, Component):
        _of_kind(model, "reward_model")
        parsed = model.parse(options or {})
        if model.can("classifier", parsed):
            vectors = np.random.default_rng(0).normal(size=(len(VOCABULARY), 6)).astype(np.float32)
            size = ModelConfig(hidden=4, dropout=0.5)
            classifier = build_classifier(size, labels, sentences, vectors, len(VOCABULARY)).train()
        model = model.build(RewardSetup(labels, sentences, classifier, "cpu", VOCABULARY), parsed)
    checked = _Scored(model)
    for seed in range(2):
        batch, selections = _random_batch(labels, sentences, seed)
        _check_scores(checked, batch, selections)
        if classifier is None:
            continue
        checked.require(classifier.training, "leaves evaluation mode behind", "Restore its mode")
        if isinstance(model, LogitsReward):
            tokens, valid, chosen = (
                [torch.from_numpy(array) for array in arrays]
                for arrays in (batch.tokens, batch.valid, selections)
            )
            with evaluating(classifier), torch.inference_mode():
                logits = classifier(tokens, valid, chosen)
            checked.same(
                named_scores(model.score_logits(logits, batch.labels), len(batch), model),
                checked.score(batch, selections),
                "scores the classifier's logits differently from the selection",
                "Leave out score_logits if the score needs more than the logits",
            )


def _random_batch(labels: LabelSpec, sentences: int, seed: int) -> tuple[Batch, tuple[Array, ...]]:
    """Examples of classes or scores, and selections: nothing of the first, all of the second."""
    draw = np.random.default_rng(seed)
    lengths = np.array((5, 2, 1, 4))
    real = np.arange(lengths.max()) < lengths[:, None]  # [B, N]
    tokens = [np.where(real, draw.integers(1, len(VOCABULARY), real.shape), 0)] * sentences
    if labels.kind == "score":
        gold: Array = draw.uniform(labels.low, labels.high, len(lengths)).astype(np.float32)
    else:
        gold = np.arange(len(lengths), dtype=np.int64) % len(labels.names)
    chosen = draw.random((len(lengths), ROLES, real.shape[1])) < 0.5
    chosen[0], chosen[1] = False, True
    rows = np.arange(len(lengths), dtype=np.int64)
    batch = Batch(rows, tuple(tokens), (real,) * sentences, gold)
    return batch, (chosen & real[:, None],) * sentences


class _Scored(_Promises):
    """A reward model under test."""

    def __init__(self, model: Any) -> None:
        super().__init__(getattr(model, "__name__", type(model).__name__))
        self.model = model

    def score(self, batch: Batch, selections: tuple[Array, ...]) -> dict[str, Array]:
        """Its terms; checked for shape, finiteness and unchanged arguments."""
        score = getattr(self.model, "score", self.model)
        self.require(callable(score), "has no `score`", "Give it score(batch, selections)")
        before = pickle.dumps((batch, selections))
        terms = named_scores(score(batch, selections), len(batch), self.model)
        same = before == pickle.dumps((batch, selections))
        self.require(same, "changes its arguments", "Work on a copy")
        for name, values in terms.items():
            finite = np.isfinite(values).all()
            self.require(finite, f"'{name}' is not finite", "Score an empty selection, too")
        return terms

    def same(
        self, one: Mapping[str, Array], other: Mapping[str, Array], what: str, remedy: str
    ) -> None:
        """Raise unless the terms are equal, up to rounding."""
        self.require(list(one) == list(other), "names other terms from call to call", "Return all")
        equal = all(np.allclose(one[name], other[name], atol=1e-4) for name in one)
        self.require(equal, what, remedy)


def _check_scores(checked: _Scored, batch: Batch, selections: tuple[Array, ...]) -> None:
    whole = checked.score(batch, selections)
    checked.same(
        checked.score(batch, selections),
        whole,
        "scores equal selections differently from call to call",
        "Draw nothing, and run networks in evaluation mode, without dropout",
    )
    for index, length in enumerate(batch.valid[0].sum(1)):
        one = batch.take(np.array([index]))
        cut = Batch(
            one.rows,
            tuple(tokens[:, :length] for tokens in one.tokens),
            tuple(valid[:, :length] for valid in one.valid),
            one.labels,
        )
        checked.same(
            checked.score(cut, tuple(s[index : index + 1, :, :length] for s in selections)),
            {name: values[index : index + 1] for name, values in whole.items()},
            "scores a selection differently alone and in a padded batch",
            "Use only real tokens, and score each example by itself",
        )
    back = np.arange(len(batch))[::-1]
    twice = tuple(
        np.concatenate([s, s[back] & valid[:, None]])
        for s, valid in zip(selections, batch.valid, strict=True)
    )
    found = checked.score(batch.repeat(2), twice)
    checked.same(
        {name: values[: len(batch)] for name, values in found.items()},
        whole,
        "scores depend on other selections of the same examples",
        "Entry k * B + b of a batch is the k-th selection of example b",
    )
    checked.same(
        _Scored(checked.pickled(checked.model)).score(batch, selections),
        whole,
        "scores differently after pickling",
        "Keep what it needs in attributes",
    )
