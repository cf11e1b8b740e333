"""Policies read a sentence, or the whole example, and only real tokens of it."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch

from rss_rl.errors import ConfigError
from rss_rl.ops.matching import Sequences, cross_features
from rss_rl.policies.inputs import check_reads, input_size, policy_inputs
from rss_rl.testing import check_policy

POLICIES: dict[str, dict[str, Any]] = {
    "rss": {},
    "rss over lstm": {"context": "lstm"},
    "iterative": {"name": "iterative"},
    "hardkuma": {"name": "hardkuma"},
    "top-k": {"name": "top-k", "options": {"share": 0.4}},
}


def pair() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Ids and masks of two sentences of three examples."""
    slots = [small.sentences(4, 2, 7, seed=1), small.sentences(3, 5, 1, seed=2)]
    return [tokens for tokens, _ in slots], [valid for _, valid in slots]


def test_a_sentence_is_shown_as_its_own_vectors() -> None:
    tokens, valid = pair()
    embedding = small.classifier().embedding
    shown = policy_inputs(small.policy(), embedding, tokens, valid)
    for mine, ids in zip(shown, tokens, strict=True):
        assert torch.equal(mine, embedding(ids))


def test_an_example_is_shown_as_each_sentence_beside_the_others() -> None:
    (a, b), (keep_a, keep_b) = pair()
    embedding = small.classifier().embedding
    first, second = (
        Sequences(ids, embedding(ids), keep) for ids, keep in ((a, keep_a), (b, keep_b))
    )
    shown = policy_inputs(small.policy(), embedding, (a, b), (keep_a, keep_b), "example")
    assert torch.equal(shown[0], cross_features(first, second))
    assert torch.equal(shown[1], cross_features(second, first))
    assert {part.shape[-1] for part in shown} == {input_size("example", small.EMBEDDING)}


def test_only_the_other_sentence_of_the_same_example_matters() -> None:
    tokens, valid = pair()
    embedding = small.classifier().embedding
    changed = [ids.clone() for ids in tokens]
    changed[1][1, 0] = 1 + (changed[1][1, 0] + 5) % (small.WORDS - 1)
    before, after = (
        policy_inputs(small.policy(), embedding, ids, valid, "example") for ids in (tokens, changed)
    )
    assert torch.equal(before[0][[0, 2]], after[0][[0, 2]])
    assert not torch.equal(before[0][1], after[0][1])


@pytest.mark.parametrize("settings", POLICIES.values(), ids=POLICIES)
def test_policies_that_read_examples_keep_the_contract(settings: dict[str, Any]) -> None:
    policy = small.policy(double=False, reads="example", **settings)
    check_policy(policy, input_size("example", small.EMBEDDING))


def test_where_there_is_no_other_sentence_it_is_refused() -> None:
    check_reads("example", 2)
    check_reads("sentence", 1)
    with pytest.raises(ConfigError, match=r"policy\.reads.*one sentence.*policy\.reads=sentence"):
        check_reads("example", 1)
