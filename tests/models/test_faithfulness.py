"""Which tokens a prediction rests on: the selected ones alone, except in the paper's own ReSAN."""

from __future__ import annotations

import pytest
import small
import torch
from compiling import needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.models.sentences import remove_unselected

FAITHFUL = [name for name in small.VARIANTS if not name.startswith("resan")]


def other_words_where(tokens: Tensor, changed: Tensor) -> Tensor:
    return torch.where(changed, tokens % (small.WORDS - 1) + 1, tokens)


@needs_compiler
@pytest.mark.parametrize("variant", FAITHFUL)
@pytest.mark.parametrize("shared", [False, True], ids=["two roles", "one role"])
@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.0, 0.2, 0.5, 0.8]),
    samples=st.sampled_from([1, 3]),
    learns=st.booleans(),
)
def test_unselected_tokens_leave_the_logits_bit_equal(
    variant: str, shared: bool, seed: int, share: float, samples: int, learns: bool
) -> None:
    model = small.classifier(double=False, **small.VARIANTS[variant])
    tokens, valid, _ = small.pairs((6, 2), (1, 7), (5, 5), seed=seed)
    selections = [
        torch.cat([small.selection(mask, share, seed=seed + k) for k in range(samples)])
        for mask in valid
    ]
    if shared:  # w/o dependency restricted: one bit decides both roles
        selections = [s[:, :1].expand(-1, 2, -1) for s in selections]

    def logits(*given_: list[Tensor]) -> Tensor:
        with torch.set_grad_enabled(learns):
            return model(*given_)

    before = logits(tokens, valid, selections)
    kept = [s.any(1).view(samples, 3, -1).any(0) for s in selections]
    unselected = [v & ~k for v, k in zip(valid, kept, strict=True)]
    changed = [other_words_where(t, u) for t, u in zip(tokens, unselected, strict=True)]
    assert torch.equal(logits(changed, valid, selections), before)
    # Neither does their number matter: the same selected tokens in a longer sentence.
    longer = [torch.nn.functional.pad(t, (0, 3), value=5) for t in tokens]
    more = [torch.cat([v, torch.ones(3, 3, dtype=torch.bool)], 1) for v in valid]
    same = [torch.nn.functional.pad(s, (0, 3)) for s in selections]
    assert torch.equal(logits(longer, more, same), before)


@pytest.mark.parametrize("variant", [v for v in small.VARIANTS if v not in FAITHFUL])
def test_in_the_papers_resan_unselected_tokens_still_reach_the_logits(variant: str) -> None:
    model = small.classifier(double=False, **small.VARIANTS[variant])
    tokens, valid, selections = small.pairs((6, 4), (3, 7), (5, 5), share=0.3)
    changed = [
        other_words_where(t, v & ~s.any(1))
        for t, v, s in zip(tokens, valid, selections, strict=True)
    ]
    difference = (model(changed, valid, selections) - model(tokens, valid, selections)).abs()
    assert (difference.amax(1) > 1e-3).all()


def test_in_the_faithful_form_a_dependent_is_seen_by_the_heads_alone() -> None:
    model = small.classifier(sentences=1, **small.VARIANTS["faithful"])
    tokens, valid = small.sentences(4)
    changed = other_words_where(tokens, torch.tensor([[False, True, False, False]]))
    dependent_only = torch.tensor([[[True, False, False, False], [False, True, False, False]]])
    assert not torch.equal(
        model([tokens], [valid], [dependent_only]), model([changed], [valid], [dependent_only])
    )
    no_head = torch.tensor([[[False] * 4, [False, True, False, False]]])
    assert torch.equal(model([tokens], [valid], [no_head]), model([changed], [valid], [no_head]))


def test_remove_unselected_keeps_order_and_roles() -> None:
    tokens = torch.tensor([[7, 8, 9, 4], [5, 6, 0, 0]])
    valid = torch.tensor([[True] * 4, [True, True, False, False]])
    selection = torch.tensor(
        [
            [[False, True, False, False], [False, False, False, True]],
            [[False, False, True, False], [True, False, False, False]],
        ]
    )
    left, kept, roles = remove_unselected(tokens, valid, selection)
    assert left.tolist() == [[8, 4], [5, 0]]
    assert kept.tolist() == [[True, True], [True, False]]
    assert roles.tolist() == [
        [[True, False], [False, True]],
        [[False, False], [True, False]],
    ]
