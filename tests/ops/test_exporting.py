"""What is computed while a graph is recorded equals what is computed otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small import VARIANTS, classifier, pairs
from torch.compiler import is_exporting

from rss_rl.models import resa, sentences
from rss_rl.ops import attention, gated, linear_maps, masking

ALL: dict[str, dict[str, Any]] = VARIANTS | {
    "disan": {"encoder": "disan"},
    "bilstm": {"encoder": "bilstm"},
    "bigru": {"encoder": "bigru"},
    "cnn": {"encoder": "cnn", "filters": 4},
    "hierarchical-cnn": {"encoder": "hierarchical-cnn"},
    "multi-head": {"encoder": "multi-head", "heads": 2},
}


@pytest.mark.parametrize("name", ALL)
def test_masked_equals_removed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_exporting()
    model = classifier(**ALL[name])
    tokens, valid, selections = pairs((7, 3), (2, 9), (5, 1), seed=4)
    selections[0][1] = False  # a sentence that loses all its words
    with torch.inference_mode():
        expected = model(tokens, valid, selections)
        calls = []
        for module in (masking, attention, linear_maps, gated, resa, sentences):
            monkeypatch.setattr(module, "is_exporting", lambda: calls.append(1) or True)
        found = model(tokens, valid, selections)
    assert calls
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
