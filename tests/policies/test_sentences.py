"""Policies of whole sentences: the policy inside, on means of the sentences' vectors."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from rss_rl.config import PolicyConfig
from rss_rl.errors import ConfigError
from rss_rl.policies.adapters import PolicyModule
from rss_rl.policies.build import build_policy
from rss_rl.policies.contract_case import VOCABULARY
from rss_rl.policies.inputs import policy_inputs
from rss_rl.policies.protocol import FactorisedPolicy, RelaxedPolicy
from rss_rl.policies.sentences import SentencePolicy
from rss_rl.testing import check_policy

E = 4
WORDS = (*VOCABULARY, "!", "?!", "...")
STOP, CRY, BOTH, DOTS = (WORDS.index(word) for word in (".", "!", "?!", "..."))
TEXTS = [
    [2, 3, STOP, 4, 5, 6, BOTH, DOTS, 2],  # sentences of 3, 5 and 1 tokens
    [2, 3, 4, CRY],
    [STOP],
    [],
]
SENTENCES = [[0, 0, 0, 1, 1, 1, 1, 1, 2], [0, 0, 0, 0], [0], []]
LEARNING: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    (name, {"hidden": 6, "shared": shared})
    for name in ("rss", "crf", "smooth", "gumbel", "hardkuma", "iterative")
    for shared in (False, True)
)


def built(name: str, unit: str = "sentence", **options: Any) -> PolicyModule:
    config = PolicyConfig.model_validate({"name": name, "unit": unit, "options": options})
    torch.manual_seed(1)
    return build_policy(config, E, "elu", WORDS)


def read(policy: PolicyModule) -> tuple[Tensor, Tensor]:
    """What the policy reads of TEXTS, and where tokens are."""
    width = max(map(len, TEXTS))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in TEXTS])
    valid = torch.arange(width) < torch.tensor([len(text) for text in TEXTS])[:, None]
    table = torch.randn(len(WORDS), E, generator=torch.Generator().manual_seed(2))
    (shown,) = policy_inputs(policy, lambda tokens: table[tokens], [ids], [valid])
    return shown, valid


def by_token(values: Tensor, valid: Tensor) -> Tensor:
    """Values of sentences [..., B, 2, U] as values of their tokens, in a loop."""
    found = values.new_zeros((*values.shape[:-1], valid.shape[1]))
    for row, numbers in enumerate(SENTENCES):
        for place, number in enumerate(numbers):
            found[..., row, :, place] = values[..., row, :, number]
    return found


@pytest.mark.parametrize(("name", "options"), [*LEARNING, ("bernoulli", {})])
def test_it_keeps_what_a_policy_promises(name: str, options: dict[str, Any]) -> None:
    check_policy(built(name, **options), E)


@pytest.mark.parametrize(("name", "options"), LEARNING)
def test_it_is_the_policy_inside_on_means_of_sentences(name: str, options: dict[str, Any]) -> None:
    whole, plain = built(name, **options), built(name, "word", **options)
    shown, valid = read(whole)
    (vectors, _), places = read(plain), [[0, 3, 8], [0], [0], []]
    means = torch.zeros(len(TEXTS), 3, E)
    real = torch.zeros(len(TEXTS), 3, dtype=torch.bool)
    uniforms = torch.rand(5, len(TEXTS), 2, valid.shape[1], generator=torch.manual_seed(3))
    drawn = torch.full((5, len(TEXTS), 2, 3), 0.5)
    for row, numbers in enumerate(SENTENCES):
        for number, place in enumerate(places[row]):
            member = [i for i, of in enumerate(numbers) if of == number]
            means[row, number] = vectors[row, member].mean(0)
            real[row, number] = True
            drawn[:, row, :, number] = uniforms[:, row, :, place]
    inside = plain.sample(means, real, drawn)
    found = whole.sample(shown, valid, uniforms)
    assert torch.equal(found.selection, by_token(inside.selection, valid))
    assert torch.allclose(found.log_prob.sum((2, 3)), inside.log_prob.sum((2, 3)), atol=1e-6)
    said = whole.evaluate(shown, valid, found.selection)
    assert torch.allclose(said.log_prob, found.log_prob, atol=1e-6)
    assert torch.allclose(said.entropy, plain.evaluate(means, real, inside.selection).entropy)
    chances = by_token(plain.probabilities(means, real), valid)
    assert torch.allclose(whole.probabilities(shown, valid), chances, atol=1e-6)
    kept = by_token(plain.threshold(means, real), valid)
    assert torch.equal(whole.threshold(shown, valid), kept)
    if isinstance(plain, RelaxedPolicy):
        assert isinstance(whole, RelaxedPolicy)
        gates = by_token(plain.gates(means, real, drawn), valid)
        assert torch.allclose(whole.gates(shown, valid, uniforms), gates, atol=1e-6)


def test_probabilities_of_all_selections_sum_to_one() -> None:
    """Those that part a sentence have none."""
    policy = built("crf", hidden=6, shared=True)
    shown, valid = read(policy)
    texts, first = shown[:1, 1:6], valid[:1, 1:6]  # "film . is not good": two sentences
    bits = torch.tensor(list(itertools.product([False, True], repeat=5)))  # [32, N]
    every = bits[:, None, None].expand(-1, -1, 2, -1)
    chance = policy.evaluate(texts, first, every).log_prob.sum((1, 2, 3)).exp().detach()
    assert int((chance > 0).sum()) == 4
    assert float(chance.sum()) == pytest.approx(1.0)


def test_a_text_without_a_stop_is_one_sentence() -> None:
    policy = built("rss", hidden=6)
    assert isinstance(policy, SentencePolicy)
    assert policy.ends(torch.tensor([[2, 3, 4, 0]])).tolist() == [[False] * 4]
    assert policy.ends(torch.tensor([[STOP, CRY, 4, BOTH]])).tolist() == [
        [False, True, False, True]
    ]
    shown, valid = torch.randn(1, 4, E + 1), torch.tensor([[True, True, True, False]])
    shown[..., -1] = 0
    assert policy.probabilities(shown, valid)[0, 0, :3].unique().numel() == 1


def test_bits_of_words_cannot_be_weighed() -> None:
    config = PolicyConfig(name="rss", unit="sentence")
    assert not config.can("logits")
    assert config.can("share")
    assert not isinstance(built("rss", hidden=6), FactorisedPolicy)


@pytest.mark.parametrize(("name", "options"), [("stop-words", {}), ("top-k", {"tokens": 1})])
def test_a_policy_that_cannot(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"policy '{name}' cannot select whole sentences"):
        built(name, **options)


def test_words_must_be_known() -> None:
    with pytest.raises(ConfigError, match="words of the token ids are not known"):
        build_policy(PolicyConfig(name="rss", unit="sentence"), E, "elu")


def test_a_policy_that_is_told_where_sentences_end_selects_words() -> None:
    with pytest.raises(ConfigError, match="is told where sentences end") as raised:
        built("smooth", within="sentence")
    assert raised.value.where == "policy.unit"
