"""The plain reference of `make bench` is the same model."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch
import torch.nn.functional as F
from suite.reference import PlainReSAN


@pytest.mark.parametrize("share", [None, 0.5, 0.0])
def test_the_plain_reference_is_our_model_in_other_words(share: float | None) -> None:
    ours = small.classifier(keep_unselected=True)
    ours.embedding.trainable = torch.nn.Parameter(
        torch.cat([ours.embedding.trainable.data, ours.embedding.fixed])
    )
    ours.embedding.fixed = ours.embedding.fixed[:0]
    plain = PlainReSAN(small.WORDS, small.EMBEDDING, small.HIDDEN, 3, 0.0).double()
    plain.load_state_dict(ours.state_dict())
    tokens, valid, selections = small.pairs((7, 2), (3, 5), (1, 4), share=share or 0.0)
    labels, chosen = torch.tensor([0, 1, 2]), None if share is None else selections
    gradients: list[dict[str, Any]] = []
    losses = []
    for model in (ours, plain):
        loss = F.cross_entropy(model(tokens, valid, chosen), labels)
        loss.backward()
        losses.append(loss.detach())
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-12, atol=0)
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        expected = gradients[1][name]
        zero = torch.zeros(())
        torch.testing.assert_close(
            zero if gradient is None else gradient.to_dense(),
            zero if expected is None else expected,
            rtol=1e-10, atol=1e-13, msg=name,
        )  # fmt: skip
