"""A classifier gives without padding what it gives with it: logits, gradients, dropout masks."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch
from compiling import needs_compiler
from torch import Tensor

from rss_rl.models import embedding as embedding_module
from rss_rl.models.dropout import keyed_dropout
from rss_rl.models.sentences import SentencesClassifier

PACKED = [pytest.param(small.VARIANTS[name] | more, id=name + str(more)) for name, more in (
    ("resan", {}), ("resan", {"highway": True}), ("faithful", {}),
    ("source2token", {}),
)] + [pytest.param({"encoder": "disan"}, id="disan")]  # fmt: skip


def outcome(
    attention: str, given: tuple[Any, ...], settings: dict[str, Any]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits in training, with dropout, and the gradients of all parameters."""
    model = small.classifier(dropout=0.4, attention=attention, **settings).train()
    with keyed_dropout(torch.arange(len(given[0][0])) * 7 + 3):
        logits = model(*given)
    weights = torch.linspace(0.5, 1.5, logits.numel(), dtype=logits.dtype).view(logits.shape)
    (logits * weights).sum().backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return logits.detach(), found


def padding_calls(model: SentencesClassifier) -> list[tuple[int, ...]]:
    """Shapes of the tokens that will be looked up."""
    seen: list[tuple[int, ...]] = []
    model.embedding.register_forward_hook(lambda module, read, out: seen.append(read[0].shape))
    return seen


@needs_compiler
@pytest.mark.parametrize("settings", PACKED)
@pytest.mark.parametrize("chosen", ["all", "some", "none of one"])
def test_logits_and_gradients_are_those_of_padded_sentences(
    settings: dict[str, Any], chosen: str
) -> None:
    tokens, valid, selections = small.pairs((6, 2), (1, 7), (5, 5), (4, 3))
    given: tuple[Any, ...] = (tokens, valid, None if chosen == "all" else selections)
    if chosen == "none of one":
        selections[0][1] = False
        selections[1][3, 0] = False
    packed, padded = outcome("compiled", given, settings), outcome("eager", given, settings)
    torch.testing.assert_close(packed[0], padded[0], rtol=1e-9, atol=1e-12)
    assert packed[1].keys() == padded[1].keys()
    for name, gradient in packed[1].items():
        torch.testing.assert_close(gradient, padded[1][name], rtol=1e-8, atol=1e-11, msg=name)


@needs_compiler
@pytest.mark.parametrize("settings", PACKED)
def test_an_empty_shard_has_all_gradients(settings: dict[str, Any]) -> None:
    given = [torch.zeros(0, 0, dtype=torch.int64)] * 2, [torch.zeros(0, 0, dtype=torch.bool)] * 2
    logits, gradients = outcome("compiled", (*given, None), settings)
    assert logits.shape == (0, 3)
    assert gradients.keys() == outcome("eager", (*given, None), settings)[1].keys()
    assert all(not gradient.any() for gradient in gradients.values())


@needs_compiler
@pytest.mark.parametrize("settings", PACKED)
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("chosen", ["all", "some", "none of one"])
def test_a_word_that_comes_again_is_looked_up_once(
    settings: dict[str, Any], samples: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, valid, _ = small.pairs((6, 2), (1, 7), (5, 5), (4, 3))
    tokens = [ids % 4 + mask for ids, mask in zip(tokens, valid, strict=True)]
    selections = [
        torch.cat([small.selection(mask, 0.7, seed=k) for k in range(samples)]) for mask in valid
    ]
    if chosen == "all":
        selections = [mask[:, None].expand(-1, 2, -1).repeat(samples, 1, 1) for mask in valid]
    if chosen == "none of one":
        selections[0][1] = False
    model = small.classifier(attention="compiled", **settings)
    seen = padding_calls(model)
    with torch.no_grad():
        logits = model(tokens, valid, selections)
    assert [read for (read,) in seen] == [4]
    monkeypatch.setattr(embedding_module, "_FEW", 0.0)
    with torch.no_grad():
        each = model(tokens, valid, selections)
    assert seen[1][0] > 20
    torch.testing.assert_close(logits, each, rtol=1e-10, atol=1e-12)
    padded = small.classifier(attention="eager", **settings)
    torch.testing.assert_close(logits, padded(tokens, valid, selections), rtol=1e-9, atol=1e-12)
