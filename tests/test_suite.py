"""The plain reference of `make bench` is the same model, and can be updated at fixed shapes."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch
import torch.nn.functional as F
from fixed_update import Feed, FixedUpdate, as_graph, bucket
from operations import Counter
from suite.reference import PlainReSAN

from rss_rl.config import LearnerConfig, OptimizerConfig
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.learners.updates import RewardBatch, read
from rss_rl.models.inputs import TensorBatch

LENGTHS, ROWS, WIDTHS = ((7, 2), (3, 5), (1, 4)), 5, (9, 8)
"""Of three pairs, and the bucket that they are padded to."""


def reference_twins() -> tuple[Any, PlainReSAN]:
    """Our classifier and the plain one, of the same weights."""
    ours = small.classifier(keep_unselected=True)
    ours.embedding.trainable = torch.nn.Parameter(
        torch.cat([ours.embedding.trainable.data, ours.embedding.fixed])
    )
    ours.embedding.fixed = ours.embedding.fixed[:0]
    plain = PlainReSAN(small.WORDS, small.EMBEDDING, small.HIDDEN, 3, 0.0).double()
    plain.load_state_dict(ours.state_dict())
    return ours, plain


def assert_same_gradients(ours: torch.nn.Module, plain: torch.nn.Module) -> None:
    expected = dict(plain.named_parameters())
    assert expected.keys() == dict(ours.named_parameters()).keys()
    for name, parameter in ours.named_parameters():
        found = [
            torch.zeros(()) if p.grad is None else p.grad.to_dense()
            for p in (parameter, expected[name])
        ]
        torch.testing.assert_close(*found, rtol=1e-10, atol=1e-13, msg=name)


@pytest.mark.parametrize("share", [None, 0.5, 0.0])
def test_the_plain_reference_is_our_model_in_other_words(share: float | None) -> None:
    ours, plain = reference_twins()
    tokens, valid, selections = small.pairs((7, 2), (3, 5), (1, 4), share=share or 0.0)
    labels, chosen = torch.tensor([0, 1, 2]), None if share is None else selections
    losses = []
    for model in (ours, plain):
        loss = F.cross_entropy(model(tokens, valid, chosen), labels)
        loss.backward()
        losses.append(loss.detach())
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-12, atol=0)
    assert_same_gradients(ours, plain)


def drawn(seed: int = 0) -> tuple[TensorBatch, RewardBatch]:
    """A batch of pairs, with three selections of each and their rewards."""
    tokens, valid, _ = small.pairs(*LENGTHS, seed=seed)
    bits = [torch.stack([small.selection(v, seed=seed + k) for k in range(3)]) for v in valid]
    rewards = torch.randn(3, len(LENGTHS), 2, dtype=torch.float64)
    return TensorBatch(tokens, valid, torch.tensor([0, 1, 2])), small.rewarded(bits, rewards)


def test_gradients_in_a_bucket_are_those_of_the_packed_batch() -> None:
    ours, plain = reference_twins()
    policy, twin = small.policy(), small.policy()
    batch, paid = drawn()
    config = LearnerConfig(
        supervised=OptimizerConfig(clip_norm=None),
        policy=OptimizerConfig(clip_norm=None),
        entropy_cost=0.05,
    )
    classifying = SupervisedLearner(ours, config.supervised, None)
    selecting = small.policy_update(policy, ours.embedding, config, baseline="leave-one-out")
    first, keys = [bits[0] for bits in paid.selections], small.keys(0, len(LENGTHS))
    read([
        small.gradients(selecting, batch, paid),
        classifying.gradients(batch, first, number=0, dropout_keys=keys),
    ])  # fmt: skip
    update = FixedUpdate(plain, twin, bucket(batch, paid, ROWS, WIDTHS), config.entropy_cost)
    update.loss().backward()  # type: ignore[no-untyped-call]
    assert_same_gradients(ours, plain)
    assert_same_gradients(policy, twin)


def test_an_update_at_fixed_shapes_reads_no_number_and_makes_no_shape() -> None:
    """A CUDA graph can hold neither. Where there is none, the step is what it was."""
    _, plain = reference_twins()
    one, other = (bucket(*drawn(seed), ROWS, WIDTHS) for seed in range(2))
    place = one.to(torch.device("cpu"))
    step, why = as_graph(FixedUpdate(plain, small.policy(), place).step)
    assert torch.cuda.is_available() or why.startswith("no CUDA graph")
    feed = Feed(place, [one, other])
    for batch in (one, other, one):
        before = plain.head.output.weight.clone()
        with Counter() as counter:
            feed()
            step()
        assert (counter.reads, counter.shapes) == (0, 0)
        assert all(map(torch.equal, place.flat(), batch.flat()))
        assert not torch.equal(before, plain.head.output.weight)
