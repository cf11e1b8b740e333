"""Policies read a sentence, or the whole example, and only real tokens of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small
import torch

from rss_rl.config import Reads
from rss_rl.errors import ConfigError
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops.matching import Sequences, cross_features
from rss_rl.ops.ragged import SentenceEnds
from rss_rl.policies.build import check_reads, input_size
from rss_rl.policies.policy import PolicyInputs
from rss_rl.reading.models import Models
from rss_rl.testing import check_policy
from rss_rl.types import FOLD_BIT

POLICIES: dict[str, dict[str, Any]] = {
    "rss": {},
    "rss over lstm": {"context": "lstm"},
    "iterative": {"name": "iterative"},
    "hardkuma": {"name": "hardkuma"},
    "top-k": {"name": "top-k", "options": {"share": 0.4}},
}


def pair() -> TensorBatch:
    """Two sentences of three examples."""
    slots = [small.sentences(4, 2, 7, seed=1), small.sentences(3, 5, 1, seed=2)]
    tokens, valid = ([slot[part] for slot in slots] for part in range(2))
    return TensorBatch(tokens, valid, torch.zeros(3))


def read_of(batch: TensorBatch, reads: Reads = "sentence") -> list[PolicyInputs]:
    ends = SentenceEnds(small.VOCABULARY)
    models = Models(small.classifier(), small.policy(), reads, None, ends)
    return models.policy_inputs(batch)


def test_a_sentence_is_shown_as_its_own_vectors() -> None:
    batch, embedding = pair(), small.classifier().embedding
    stop = small.VOCABULARY.index(".")
    batch.tokens[0][0, 1] = stop
    for inputs, ids, valid in zip(read_of(batch), batch.tokens, batch.valid, strict=True):
        assert torch.equal(inputs.features, embedding(ids))
        assert torch.equal(inputs.ends, ids == stop)
        assert inputs.valid is valid
        with_states = inputs._replace(states=torch.ones(*ids.shape, 2)).features
        assert with_states.shape[-1] == input_size("contextual", small.EMBEDDING, 2)
        assert with_states[..., -2:].all()


def test_words_are_those_of_any_fold() -> None:
    plain, folded = pair(), pair()
    for ids, valid in zip(folded.tokens, folded.valid, strict=True):
        ids += (3 << FOLD_BIT) * valid
    models = Models(small.classifier(), small.policy())
    models.classifier.embedding.hold_out(np.zeros((4, small.WORDS, 1), np.float32))
    for inputs, ids in zip(models.policy_inputs(folded), plain.tokens, strict=True):
        assert torch.equal(inputs.tokens, ids)


def test_an_example_is_shown_as_each_sentence_beside_the_others() -> None:
    batch = pair()
    (a, b), (keep_a, keep_b) = batch[:2]
    embedding = small.classifier().embedding
    first, second = (
        Sequences(ids, embedding(ids), keep) for ids, keep in ((a, keep_a), (b, keep_b))
    )
    shown = [inputs.vectors for inputs in read_of(batch, "example")]
    assert torch.equal(shown[0], cross_features(first, second))
    assert torch.equal(shown[1], cross_features(second, first))
    assert {part.shape[-1] for part in shown} == {input_size("example", small.EMBEDDING)}


def test_only_the_other_sentence_of_the_same_example_matters() -> None:
    batch, changed = pair(), pair()
    changed.tokens[1][1, 0] = 1 + (changed.tokens[1][1, 0] + 5) % (small.WORDS - 1)
    before, after = (read_of(each, "example")[0].vectors for each in (batch, changed))
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.equal(before[1], after[1])


@pytest.mark.parametrize("settings", POLICIES.values(), ids=POLICIES)
def test_policies_that_read_examples_keep_the_contract(settings: dict[str, Any]) -> None:
    policy = small.policy(double=False, reads="example", **settings)
    check_policy(policy, input_size("example", small.EMBEDDING))


def test_where_there_is_no_other_sentence_it_is_refused() -> None:
    check_reads("example", 2)
    check_reads("sentence", 1)
    with pytest.raises(ConfigError, match=r"policy\.reads.*one sentence.*policy\.reads=sentence"):
        check_reads("example", 1)
