"""Checks for components of your own: what a run relies on of policies, updates, encoders, rewards.

    from rss_rl.testing import check_policy
    check_policy(MY_POLICY, features=8, options={"scale": 2.0})

Legend: K samples, B sentences, M sentences or scored selections, N tokens, E embedding size.
"""

from __future__ import annotations

__all__ = ["check_encoder", "check_policy", "check_policy_update", "check_reward_model"]

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rss_rl.components import DEFAULTS, Component, built_in_names, find_component
from rss_rl.config import LearnerConfig, ModelConfig, OptimizerConfig, RewardConfig
from rss_rl.errors import ComponentError, ConfigError
from rss_rl.learners.updates import Needs, PolicyUpdate, RewardBatch, UpdateSetup, read
from rss_rl.models.build import build_classifier
from rss_rl.models.dropout import drawing, evaluating
from rss_rl.models.encoders.encoder import EncoderSetup, GatedEncoder, TrainingLengths
from rss_rl.models.inputs import TensorBatch
from rss_rl.models.sentences import remove_unselected
from rss_rl.ops.ragged import SentenceEnds
from rss_rl.policies.build import check_distribution, check_module
from rss_rl.policies.distributions import Certain, selection_uniforms
from rss_rl.policies.policy import Policy, PolicyInputs, PolicySetup, bits_per_token
from rss_rl.reward_models.reward_model import Rewards, RewardSetup, named_scores
from rss_rl.types import ROLES, Array, Batch, LabelSpec

VOCABULARY = ("<pad>", "<unk>", "the", "film", "is", "not", "good", ".", "of", "it", "bad", "was")
"""Words of the ids that policies and reward models read."""
_LENGTHS = (5, 1, 0, 3, 12)
_SEEDS = range(3)
_DRAWS, _LARGEST_Z = 20_000, 6.0
_MASK = "Read only real tokens: mask sums, means, maxima, softmaxes and recurrences"
_CLASSES = LabelSpec("classes", ("no", "yes"))
_CPU = torch.device("cpu")
_UPDATES, _LEAST_GAIN = 100, 0.1
Answers = Mapping[str, Any]
"""Tensors or arrays by name, whose axis of sentences is the first, or the third from the end."""


class _Promises:
    """Raises a `ComponentError` where what is called `name` breaks a promise."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, holds: object, what: str, remedy: str) -> None:
        """Raise an error with `what` and `remedy` unless `holds`."""
        if not bool(holds):
            raise ComponentError(what, where=self.name, remedy=remedy)

    def shape(self, what: str, value: Tensor, *shape: int) -> None:
        """Raise unless a tensor has the shape and is finite."""
        actual = tuple(value.shape)
        remedy = "See its Protocol for the shapes"
        self(actual == shape, f"{what} has the shape {actual}, not {shape}", remedy)
        self(torch.isfinite(value).all(), f"{what} is not finite", _MASK)

    def same(
        self, one: Answers, other: Answers, what: str, remedy: str, within: float = 0.0
    ) -> None:
        """Raise unless both have the same values, up to `within`; `{}` in `what` is a name."""
        self(list(one) == list(other), "names other terms from call to call", "Return all")
        for name, value in one.items():
            apart = torch.as_tensor(value).double() - torch.as_tensor(other[name]).double()
            self(not (apart.abs() > within).any(), what.format(name), remedy)

    def consistent(
        self, answer: Callable[[_Texts], Answers], texts: _Texts, within: float
    ) -> Answers:
        """The answers about a batch; raise unless they are the same again, and about parts of it.

        The parts are each sentence alone, and no sentence at all, as in a learner's shard.
        """
        together = answer(texts)
        self.same(
            together,
            answer(texts),
            "{} differs between two calls with equal arguments",
            "Take all randomness from `uniforms`, keep no state, and do not change the arguments",
        )
        parts = [(slice(row, row + 1), length) for row, length in enumerate(_LENGTHS)]
        for rows, length in (*parts, (slice(0, 0), max(_LENGTHS))):
            what = f"a sentence of {length} tokens" if rows.stop else "a batch without a sentence"
            try:
                alone = answer(texts.part(rows, length))
            except (RuntimeError, IndexError, ValueError) as error:
                self(False, f"{what}: {error}", "Shards and sentences may be empty")
            expected = {
                name: value[rows] if value.ndim < 3 else value[..., rows, :, :length]
                for name, value in together.items()
            }
            for name, value in alone.items():
                self.shape(f"{name} of {what}", value, *expected[name].shape)
            said = f"{{}} of {what} depends on the padding around it"
            self.same(alone, expected, said, _MASK, within)
        return together

    def gradients(self, what: str, total: Tensor, leaves: Answers, *, nonzero: bool) -> None:
        """Raise unless every leaf gets a finite gradient, and if asked one that is not 0."""
        self(total.requires_grad, f"{what} gives no gradient", "Do not detach")
        every = list(leaves.values())
        slopes = torch.autograd.grad(total, every, allow_unused=True, retain_graph=True)
        for name, slope in zip(leaves, slopes, strict=True):
            self(
                slope is not None and torch.isfinite(slope).all() and (slope.any() or not nonzero),
                f"{what} gives no finite gradient to '{name}'",
                "Do not detach, drop unused parameters, and mask before dividing or taking logs",
            )

    def constant(self, module: nn.Module, use: Callable[[Any], object]) -> None:
        """Raise if a module's buffers change when it is used in training mode."""
        learning = copy.deepcopy(module).train()
        use(learning)
        self(
            all(map(torch.equal, learning.buffers(), module.buffers())),
            "a buffer changes in training mode",
            "Samplers receive parameters only: keep no running statistics",
        )

    def built_again(self, thing: Any, other: Any, answer: Callable[[Any], Answers]) -> None:
        """Raise unless `other`, newly built, loads the state and then answers equally."""
        try:
            other.load_state_dict(thing.state_dict())
        except RuntimeError as error:
            remedy = "Build the same parameters and buffers from the same options"
            self(False, f"its state cannot be loaded: {error}", remedy)
        self.same(
            answer(other),
            answer(thing),
            "its newly built copy with its state gives another answer",
            "Keep what it needs in parameters, persistent buffers and attributes",
        )


class _Texts(NamedTuple):
    """A padded batch.

    tokens    [B, N, E]       with values on the padding, too
    valid     bool [B, N]
    bits      bool [B, 2, N]  a random selection, or [K, B, 2, N]
    uniforms  [K, B, 2, N]
    ids       int64 [B, N]    of `VOCABULARY`
    """

    tokens: Tensor
    valid: Tensor
    bits: Tensor
    uniforms: Tensor
    ids: Tensor

    @classmethod
    def random(
        cls, features: int, seed: int, *, lengths: Sequence[int] = _LENGTHS, samples: int = 3
    ) -> _Texts:
        """Embeddings of normal numbers, and three tokens of padding behind the longest text."""
        draw = torch.Generator().manual_seed(seed)
        shape = len(lengths), max(lengths) + 3
        valid = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
        tokens = torch.randn(*shape, features, generator=draw)
        uniforms = torch.rand(samples, shape[0], ROLES, shape[1], generator=draw)
        bits = (uniforms[0] < 0.5) & valid[:, None]
        ids = torch.randint(1, len(VOCABULARY), shape, generator=draw) * valid
        return cls(tokens, valid, bits, uniforms.clamp(1e-6, 1 - 1e-6), ids)

    def part(self, rows: slice, length: int) -> _Texts:
        """The first tokens of some rows."""
        bits, uniforms = (each[..., rows, :, :length] for each in (self.bits, self.uniforms))
        tokens, valid, ids = (each[rows, :length] for each in (self.tokens, self.valid, self.ids))
        return _Texts(tokens, valid, bits, uniforms, ids)

    @property
    def inputs(self) -> PolicyInputs:
        """What a policy reads of them: embeddings are zeros on padding."""
        vectors = self.tokens * self.valid[..., None]
        return PolicyInputs(vectors, self.valid, self.ids, SentenceEnds(VOCABULARY)(self.ids))


# Policies


def check_policy(
    policy: nn.Module | Component, features: int, options: Mapping[str, Any] | None = None
) -> None:
    """Check everything that a run relies on of a policy and of the distributions that it returns.

    Shapes and masks; log-probs against observed frequencies; a gradient for every parameter; equal
    selections for equal uniforms; saving and loading; unchanged buffers; a sentence alone
    and in a padded batch; empty sentences and an empty batch. In evaluation mode, in which a run
    selects. Takes a second or two.

    Args:
        policy: a component of kind policy, or a module as of `rss_rl.policies.policy`.
        features: that it reads of a token. options: of the component; None: its defaults.

    Raises:
        ComponentError: the first broken promise, with a remedy.
        ConfigError: it is not a policy, or not as its component declares.
    """
    other, declared = None, None
    if isinstance(policy, Component):
        name, parsed = policy.name, policy.parse(options or {})
        setup, declared = PolicySetup(features, "elu", VOCABULARY), policy.all_capabilities(parsed)
        module, other = (check_module(policy.build(setup, parsed), name) for _ in range(2))
        other = other.eval()
    else:
        name, module = type(policy).__name__, check_module(policy, "check_policy")
    promises = _Promises(name)
    with evaluating(module):
        first = _Texts.random(features, 0)
        check_distribution(distribution := module(first.inputs), declared, name)
        for seed in _SEEDS:
            _check_selections(module, promises, _Texts.random(features, seed))
        if other is not None:
            promises.built_again(module, other, lambda policy: _selected(policy, first))
        promises.constant(module, lambda policy: _selected(policy, first))
        if distribution.has_log_probs:
            few = _Texts.random(features, 7, lengths=(2, 1), samples=_DRAWS)
            _check_frequency(module, promises, few)


def _selected(policy: Policy, texts: _Texts) -> dict[str, Tensor]:
    """What its distribution returns."""
    distribution, uniforms = policy(texts.inputs), texts.uniforms
    answers = {name: getattr(distribution, name) for name in ("mode", "probs", "steered")}
    answers["sample"], answers["log_prob of sample"] = distribution.sample(uniforms)
    if distribution.has_log_probs:
        bits = texts.bits.expand(uniforms.shape)
        answers["evaluate"], answers["entropy"] = distribution.evaluate(bits)
    if distribution.has_rsample:
        answers["rsample"] = distribution.rsample(uniforms)
    return answers


def _check_selections(policy: Policy, promises: _Promises, texts: _Texts) -> None:
    drawn = policy(texts.inputs).sample(texts.uniforms).selection
    answers = promises.consistent(partial(_selected, policy), texts._replace(bits=drawn), 1e-4)
    count, width = texts.valid.shape
    shapes = dict.fromkeys(("mode", "probs", "steered"), (count, ROLES, width))
    for name, value in answers.items():
        shape = (count,) if name == "entropy" else shapes.get(name, texts.uniforms.shape)
        promises.shape(name, value, *shape)
        real = texts.valid.any(1) if name == "entropy" else texts.valid[:, None]
        off = (value * ~real).any()
        promises(not off, f"{name} on padding is not 0", "Mask by valid[:, None]")
        if name in ("mode", "sample"):
            promises(value.dtype == torch.bool, f"{name} is no bool", "Return a bool tensor")
        if name in ("probs", "rsample", "steered"):
            unit = value.min() >= 0 and value.max() <= 1
            promises(unit, f"{name} leave [0, 1]", "Use a sigmoid, or clamp them")
    promises(
        bits_per_token(policy) == ROLES or torch.equal(drawn[:, :, 0], drawn[:, :, 1]),
        "bits_per_token is 1, but the heads that sample selects differ from the dependents",
        f"Drop the attribute, or make it {ROLES}",
    )
    certain = isinstance(policy(texts.inputs), Certain)
    _check_learning(promises, answers, {} if certain else dict(policy.named_parameters()))


def _check_learning(promises: _Promises, answers: Answers, leaves: Answers) -> None:
    """Log-probs and gates agree with the selections, and teach the parameters."""
    if "evaluate" in answers:
        promises.same(
            {"evaluate": answers["evaluate"]},
            {"evaluate": answers["log_prob of sample"]},
            "evaluate's log_prob differs from that of sample",
            "Both must be log p of the same bits: the learner compares them",
            within=1e-4,
        )
        if leaves:  # separately, because at entropy cost 0 the entropy gets no gradient
            total = answers["evaluate"].square().sum()
            promises.gradients("evaluate's log_prob", total, leaves, nonzero=False)
            total = total + answers["entropy"].sum()
            promises.gradients("evaluate's log_prob and entropy", total, leaves, nonzero=False)
    if "rsample" in answers:
        promises(
            torch.equal(answers["rsample"] > 0, answers["sample"]),
            "the nonzero gates are not the selection that sample draws",
            "A gate of exactly 0 is a token that is not selected",
        )
        weights = torch.linspace(1, 2, answers["rsample"].numel()).view_as(answers["rsample"])
        if leaves:
            total = (answers["rsample"] * weights).sum()
            promises.gradients("rsample", total, leaves, nonzero=False)


def _check_frequency(policy: Policy, promises: _Promises, texts: _Texts) -> None:
    """exp(log_prob) of each sampled selection is its relative frequency."""
    with torch.no_grad():
        drawn = policy(texts.inputs).sample(texts.uniforms)
    for row in range(len(texts.valid)):
        bits = drawn.selection[:, row].flatten(1).to(torch.uint8)
        log_prob = drawn.log_prob[:, row].sum((-1, -2))
        seen, which, counts = bits.unique(dim=0, return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
        chance = torch.zeros(len(seen)).scatter_(0, which, log_prob.exp().float())
        error = (chance * (1 - chance) / _DRAWS).clamp_min(1e-8).sqrt()
        worst = ((counts / _DRAWS - chance).abs() / error).max()
        promises(
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
) -> None:
    """Check all that a run relies on.

    A sentence has the same vector alone and in a padded batch, whatever the padding; a sentence
    without tokens, or without selected ones, gives zeros; every parameter gets a gradient; in
    evaluation mode equal inputs give equal vectors, as does a copy that loads the state. Gates of 0
    and 1 give the vectors of that selection. Equal seeds give equal weights. Takes a second.

    Args:
        encoder: a component of kind `encoder`.
        inputs: E, the size of embeddings that it reads.
        options: of the component, if not its defaults.

    Raises:
        ComponentError: the first broken promise, with a remedy.
        ConfigError: invalid options.
    """
    promises, parsed = _Promises(encoder.name), encoder.parse(options or {})
    setup, built = EncoderSetup(inputs, 4, lengths=TrainingLengths(((4.0, 2.0),), 8)), []
    for _ in range(2):
        with drawing(0):
            built.append(encoder.build(setup, parsed))
    first, second = built
    promises.same(
        first.state_dict(),
        second.state_dict(),
        "equal seeds give other weights in '{}'",
        "Draw weights only from torch's global generator",
    )
    gates = encoder.can("gates", parsed)
    promises(
        isinstance(first, GatedEncoder) or not gates,
        "declares `gates` and has no method gated",
        "See GatedEncoder, or do not declare it",
    )
    promises(
        not (encoder.can("kept_only", parsed) and first.reads_unselected),
        "declares `kept_only`, and reads_unselected is true",
        "Set it to False, so that unselected words are removed before it",
    )
    module = copy.deepcopy(first).double().eval()
    texts = [_doubled(_Texts.random(inputs, seed)) for seed in _SEEDS]
    for batch in texts:
        _check_vectors(module, promises, batch, gates=gates)
    second = second.double().eval()
    promises.built_again(module, second, lambda other: _answer(other, texts[0]))
    promises.constant(module, lambda other: _vectors(other, texts[0]))
    # At random weights: initial zeros can hide what they multiply.
    random, other = torch.Generator().manual_seed(3), copy.deepcopy(module)
    for parameter in other.parameters():
        noise = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
        parameter.data.copy_(0.6 * noise)
    leaves = {"embeddings": texts[0].tokens.requires_grad_(), **dict(other.named_parameters())}
    total = torch.stack([_weighed(_vectors(other, _whole(batch))) for batch in texts]).sum()
    promises.gradients("a vector", total, leaves, nonzero=True)


def _doubled(texts: _Texts) -> _Texts:
    return texts._replace(tokens=texts.tokens.double())


def _whole(texts: _Texts) -> _Texts:
    """With every token selected."""
    return texts._replace(bits=texts.valid[:, None].expand(-1, ROLES, -1))


def _vectors(encoder: Any, texts: _Texts) -> Tensor:
    """As a classifier calls it: unselected tokens are removed unless the encoder reads them."""
    embedded, valid, chosen = texts[:3]
    if not encoder.reads_unselected:
        positions = torch.arange(valid.shape[1]).expand_as(valid)
        index, valid, chosen = remove_unselected(positions, valid, chosen)
        embedded = embedded.gather(1, index[..., None].expand(-1, -1, embedded.shape[-1]))
    vectors: Tensor = encoder(embedded, valid, chosen)
    return vectors


def _answer(encoder: Any, texts: _Texts) -> Answers:
    return {"the vector": _vectors(encoder, texts)}


def _check_vectors(module: Any, promises: _Promises, texts: _Texts, *, gates: bool) -> None:
    count, size = len(_LENGTHS), module.output_size
    for batch in (_whole(texts), texts):
        together = promises.consistent(partial(_answer, module), batch, 1e-8)
        promises.shape("the sentences' vectors", together["the vector"], count, size)
        if gates:
            bits = batch.bits.double().requires_grad_()
            gated = module.gated(batch.tokens, batch.valid, bits)
            promises.same(
                {"the vector": gated},
                together,
                "gates of 0 and 1 do not give what that selection gives",
                "Multiply attention weights by the gates of dependents, pooling weights by those of"
                " heads, and divide by their sums",
                within=1e-8,
            )
            promises.gradients("a vector", _weighed(gated), {"gates": bits}, nonzero=True)
    empty = _vectors(module, _whole(texts))[_LENGTHS.index(0)]
    promises(not empty.any(), "a sentence without a token does not give zeros", _MASK)
    none = _vectors(module, texts._replace(bits=torch.zeros_like(texts.bits)))
    promises.shape("without a selected token a vector", none, count, size)
    if not module.reads_unselected:
        promises(not none.any(), "a sentence without a selected token does not give zeros", _MASK)


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
    alone and in a batch; unchanged arguments. For one that scores with the classifier also that
    dropout is off, and that the classifier's mode is restored.

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
        parsed = model.parse(options or {})
        if model.can("classifier", parsed):
            vectors = np.random.default_rng(0).normal(size=(len(VOCABULARY), 6)).astype(np.float32)
            size = ModelConfig(hidden=4, dropout=0.5)
            classifier = build_classifier(size, labels, sentences, vectors, len(VOCABULARY)).train()
        model = model.build(RewardSetup(labels, sentences, classifier, "cpu", VOCABULARY), parsed)
    promises = _Promises(getattr(model, "__name__", type(model).__name__))
    for seed in range(2):
        batch, selections = _random_batch(labels, sentences, seed)
        _check_scores(model, promises, batch, selections)
        if classifier is not None:
            promises(classifier.training, "leaves evaluation mode behind", "Restore its mode")


def _random_batch(labels: LabelSpec, sentences: int, seed: int) -> tuple[Batch, tuple[Array, ...]]:
    """Examples of classes or scores, each with two selections: nothing of the first, all of the
    second, random ones."""
    draw = np.random.default_rng(seed)
    lengths = np.array((5, 2, 1, 4))
    real = np.arange(lengths.max()) < lengths[:, None]  # [B, N]
    tokens = [np.where(real, draw.integers(1, len(VOCABULARY), real.shape), 0)] * sentences
    if labels.kind == "score":
        gold: Array = draw.uniform(labels.low, labels.high, len(lengths)).astype(np.float32)
    else:
        gold = np.arange(len(lengths), dtype=np.int64) % len(labels.names)
    rows = np.arange(len(lengths), dtype=np.int64)
    batch = Batch(rows, tuple(tokens), (real,) * sentences, gold).repeat(2)
    chosen = draw.random((len(batch), ROLES, real.shape[1])) < 0.5
    chosen[0], chosen[1] = False, True
    return batch, (chosen & batch.valid[0][:, None],) * sentences


def _scored(
    model: Any, promises: _Promises, batch: Batch, selections: tuple[Array, ...]
) -> dict[str, Array]:
    """Terms of the score; checked for shape, finiteness and unchanged arguments."""
    score = getattr(model, "score", model)
    promises(callable(score), "has no `score`", "Give it score(batch, selections)")
    before = pickle.dumps((batch, selections))
    terms = named_scores(score(batch, selections), len(batch), model)
    same = before == pickle.dumps((batch, selections))
    promises(same, "changes its arguments", "Work on a copy")
    for name, values in terms.items():
        finite = np.isfinite(values).all()
        promises(finite, f"'{name}' is not finite", "Score an empty selection, too")
    return terms


def _check_scores(
    model: Any, promises: _Promises, batch: Batch, selections: tuple[Array, ...]
) -> None:
    scores = _scored(model, promises, batch, selections)
    promises.same(
        _scored(model, promises, batch, selections),
        scores,
        "scores equal selections differently from call to call",
        "Draw nothing, and run networks in evaluation mode, without dropout",
        within=1e-4,
    )
    for index, length in enumerate(batch.valid[0].sum(1)):
        one, rows = batch.take(np.array([index])), slice(index, index + 1)
        tokens, valid = (
            tuple(each[:, :length] for each in slots) for slots in (one.tokens, one.valid)
        )
        cut = Batch(one.rows, tokens, valid, one.labels)
        promises.same(
            _scored(model, promises, cut, tuple(s[rows, :, :length] for s in selections)),
            {name: values[rows] for name, values in scores.items()},
            "scores a selection differently alone and in a padded batch with others",
            "Use only real tokens, and score each selection by itself: entry k * B + b of a batch"
            " is the k-th of example b",
            within=1e-4,
        )


# Policy updates


def check_policy_update(update: Component, *, options: Mapping[str, Any] | None = None) -> None:
    """Check what a run relies on: nothing changes before `apply`; rewarded words become
    more likely than others; under a price alone fewer are kept; finite metrics; an update that is
    saved and loaded continues as if it had not been. Takes some seconds.

    Args:
        update: a component of kind `policy_update`. options: of it; None: its defaults.

    Raises:
        ComponentError: the first broken promise, with a remedy.
        ConfigError: invalid options, or it builds no `PolicyUpdate`.
    """
    promises, play = _Promises(update.name), partial(_Play, update, update.parse(options or {}))
    one = play()
    before = one.weights()
    one.step(rewarding=True, apply=False)
    promises.same(one.weights(), before, "`gradients` changes {}", "Change it in `apply`")
    for _ in range(_UPDATES):
        metrics = one.step(rewarding=True)
        finite = np.isfinite(list(metrics.values())).all()
        promises(finite, "a metric is not finite", "Read docs/metrics.md for what they are")
    gained = one.gap() - play().gap()
    what = f"rewarded words are kept {gained:+.0%} more often than others after training"
    promises(gained > _LEAST_GAIN, what, "Ascend the rewards, which are not losses")
    other = play()
    other.policy.load_state_dict(one.policy.state_dict())
    other.update.load_state_dict(copy.deepcopy(dict(one.update.state_dict())))
    other.number = one.number
    for each in (one, other):
        each.step(rewarding=True)
    what = "loaded from `state_dict`, an update continues with another {}"
    promises.same(one.weights(), other.weights(), what, "Save and load all that is not weights")
    priced = play()
    kept = priced.kept()
    for _ in range(_UPDATES):
        priced.step(rewarding=False)
    what = "a price on words does not lower how many are kept"
    promises(priced.kept() < kept, what, "Subtract `price` times probabilities: `role_cost`")


class _Play:
    """A small policy, and an update of it that every second word of the vocabulary rewards."""

    def __init__(self, update: Component, options: Any) -> None:
        needs = Needs(*(update.can(name, options) for name in Needs._fields))
        draw = torch.Generator().manual_seed(0)
        vectors = torch.randn(len(VOCABULARY), 6, generator=draw)
        examples, _ = _random_batch(_CLASSES, 1, 0)
        tokens, valid = (torch.from_numpy(each[0]) for each in (examples.tokens, examples.valid))
        labels = torch.from_numpy(examples.labels)
        self._batch = TensorBatch([tokens], [valid], labels, rows=np.arange(len(labels)))
        ends = SentenceEnds(VOCABULARY)(tokens)
        self._inputs = PolicyInputs(vectors[tokens], valid, tokens, ends)
        self._good = (tokens % 2 == 0) & valid  # [B, N]
        self._needs, self.number = needs, 0
        policy = find_component("policy", DEFAULTS["policy"])
        if not needs.log_probs:
            offered = (find_component("policy", name) for name in built_in_names("policy"))
            policy = next(each for each in offered if each.can("gates"))
        with drawing(1):
            setup = PolicySetup(6, "elu", VOCABULARY)
            self.policy: Policy = check_module(policy.build(setup, policy.parse({})), policy.name)
        rate = OptimizerConfig(name="adam", learning_rate=0.02)
        learner = LearnerConfig(policy=rate, entropy_cost=0)
        costs = RewardConfig(sparsity_cost=0)
        setup_of_update = UpdateSetup(
            self.policy,
            learner,
            costs,
            uniforms=self._uniforms,
            gated=lambda: self,
        )
        self.update: PolicyUpdate = update.build(setup_of_update, options)

    def _uniforms(self, batch: TensorBatch, number: int) -> list[Tensor]:
        assert batch.rows is not None
        width, pairs = batch.valid[0].shape[1], self._needs.antithetic
        return selection_uniforms(0, number, batch.rows, [width], 4, _CPU, antithetic=pairs)

    def _worth(self, selections: Tensor) -> Tensor:
        """Score of selections or gates [K, B, 2, N], [K, B]."""
        signs = torch.where(self._good, 1.0, -1.0) * self._batch.valid[0]
        return (selections * signs[:, None]).sum((-1, -2)) * self._rewards

    def gated_scores(self, batch: TensorBatch, gates: Sequence[Tensor]) -> dict[str, Tensor]:
        """See `GatedReward`."""
        return {"worth": self._worth(gates[0]).flatten()}

    def step(self, *, rewarding: bool, apply: bool = True) -> dict[str, float]:
        """One update, with rewards for the words that are kept or a price on these."""
        self._rewards, rollout = float(rewarding), None
        if self._needs.log_probs:
            with torch.no_grad():
                distribution = self._distribution()
                drawn = distribution.sample(self._uniforms(self._batch, self.number)[0]).selection
                modes = self._worth(distribution.mode.float()[None])[0, :, None]
            worth = self._worth(drawn.float())  # [K, B]
            terms = Rewards({"worth": worth}, {"none": torch.zeros_like(worth)[..., None]})
            rollout = RewardBatch([drawn], terms, modes)
        price = None if rewarding else (1.0, 1.0)
        read_of = self._batch, [self._inputs]
        learnt = self.update.gradients(*read_of, rollout, number=self.number, price=price)
        metrics = read([learnt])
        if apply:
            self.update.apply()
            self.number += 1
        return metrics

    def _distribution(self) -> Any:
        return self.policy(self._inputs)

    def weights(self) -> Answers:
        """A copy of the policy's parameters."""
        return {name: value.detach().clone() for name, value in self.policy.named_parameters()}

    def kept(self) -> float:
        """Mean probability of a word."""
        with torch.no_grad():
            return float(self._distribution().probs.mean())

    def gap(self) -> float:
        """How much more probable rewarded words are than others."""
        with torch.no_grad():
            chances = self._distribution().probs.mean(1)  # [B, N]
        bad = self._batch.valid[0] & ~self._good
        return float(chances[self._good].mean() - chances[bad].mean())
