"""The inputs of a policy, for all its callers.

Legend: B examples, S sentences of an example, N_s tokens of slot s, E embedding size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from rss_rl.config import Reads
from rss_rl.errors import ConfigError
from rss_rl.models.embedding import words_of
from rss_rl.ops.matching import MATCH_SIZE, Sequences, cross_features
from rss_rl.policies.policy import ReadsEnds, reads_ends
from rss_rl.seeding import keyed_uniforms, stream_key
from rss_rl.types import ROLES, Array


def input_size(reads: Reads, embedding: int, states: int | None = None) -> int:
    """Input features of a policy for each token.

    Args:
        embedding: size of a word vector.
        states: size of a pretrained encoder's states; None if the policy does not read them.
    """
    if states is not None:
        return embedding + states
    return embedding if reads == "sentence" else 3 * embedding + MATCH_SIZE


def check_reads(reads: Reads, sentences: int) -> None:
    """Refuse a policy that reads whole examples if these have one sentence.

    Raises:
        ConfigError: the task has one sentence per example.
    """
    if reads == "example" and sentences == 1:
        raise ConfigError(
            "the task has one sentence per example, so there is no other to read",
            where="policy.reads",
            remedy="Set policy.reads=sentence",
        )


def policy_inputs(
    policy: object,
    embedding: Callable[[Tensor], Tensor],
    tokens: Sequence[Tensor],
    valid: Sequence[Tensor],
    reads: Reads = "sentence",
    states: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """The policy's inputs for each sentence.

    Args:
        embedding: word vectors of ids, the classifier's.
        tokens: S x int64 [B, N_s]. valid: S x bool [B, N_s], True = real token.
        reads: `sentence`: its word vectors. `example`: those and features of the other sentence of
            the example, see `cross_features`. `contextual`: those and the states of a pretrained
            encoder.
        states: S x [B, N_s, H], for a policy that reads `contextual`.

    Returns:
        S x [B, N_s, `input_size`]; for a policy that reads ends of sentences one feature more, 1
        where a sentence ends.
    """
    inputs = _vectors(embedding, tokens, valid, reads, states)
    if not reads_ends(policy):
        return inputs
    ends = cast(ReadsEnds, policy).ends
    return [
        torch.cat([vectors, ends(words_of(ids))[..., None].to(vectors.dtype)], -1)
        for vectors, ids in zip(inputs, tokens, strict=True)
    ]


def _vectors(
    embedding: Callable[[Tensor], Tensor],
    tokens: Sequence[Tensor],
    valid: Sequence[Tensor],
    reads: Reads,
    states: Sequence[Tensor] | None,
) -> list[Tensor]:
    if reads == "contextual":
        if states is None:
            raise ValueError("a batch without states for a policy that reads them")
        both = zip(tokens, states, strict=True)
        return [torch.cat([embedding(ids), seen], -1) for ids, seen in both]
    vectors = [embedding(ids) for ids in tokens]
    if reads == "sentence":
        return vectors
    slots = [Sequences(*slot) for slot in zip(tokens, vectors, valid, strict=True)]
    one, other = slots
    return [cross_features(one, other), cross_features(other, one)]


def selection_uniforms(
    seed: int,
    update: int,
    rows: Array,
    widths: Sequence[int],
    selections: int,
    device: torch.device,
    *,
    antithetic: bool = False,
) -> list[Tensor]:
    """The uniform numbers that selections of an update are drawn from, S x [K, B, 2, N_s].

    They depend only on update and row, so samplers and learners get the same ones.

    Args:
        seed: of the run. rows: int64 [B]. widths: N_s of each slot. selections: K.
        antithetic: the second half of the K are 1 - u, where the first half are u.
    """
    drawn = selections // 2 if antithetic else selections
    uniforms = []
    for slot, width in enumerate(widths):
        key = stream_key(seed, "selection", update, slot)
        numbers = torch.from_numpy(keyed_uniforms(key, rows, drawn, ROLES, width)).to(device)
        uniforms.append(torch.cat([numbers, 1 - numbers]) if antithetic else numbers)
    return uniforms
