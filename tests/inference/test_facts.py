"""What a page shows of an example is what the model computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from readers import TASKS, reader

from rss_rl.inference import facts
from rss_rl.inference.facts import gather_facts


@pytest.mark.parametrize("task", TASKS)
def test_a_flip_is_the_prediction_with_that_word_forced(task: str) -> None:
    model = reader(task, seed=3)
    encoded = model.encode(TASKS[task][2])
    facts = gather_facts(model, encoded)
    chosen = model.choose([encoded])
    for slot, flips in enumerate(facts.flips):
        assert len(flips) == len(encoded.ids[slot])
        for place, outcome in enumerate(flips):
            selections = [selection.clone() for selection in chosen.selections]
            kept = bool(selections[slot][0, :, place].any())
            selections[slot][0, :, place] = not kept
            with torch.inference_mode():
                logits = chosen.scanned.logits(selections)
            if task == "score":
                expected = model.models.classifier.predict(logits)
            else:
                expected = torch.softmax(logits[0], -1)
            np.testing.assert_allclose(outcome, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert max(np.abs(flips - facts.outcome).max() for flips in facts.flips) > 1e-4


def test_of_a_long_text_kept_words_are_flipped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    model = reader("classes", seed=3)
    encoded = model.encode((" ".join(f"w{2 + n % 26}" for n in range(40)),))
    (sentence,) = model.read([encoded])[0].sentences
    kept = sentence.selection.any(0)
    assert 0 < kept.sum() < 40
    output: list[int] = []
    most = int(kept.sum()) + 1
    monkeypatch.setattr(facts, "_MOST_FLIPS", most)
    (flips,) = gather_facts(model, encoded, output.append).flips
    computed = ~np.isnan(flips).any(1)
    assert computed.sum() == most == output[-1]
    assert computed[kept].all()
    assert sentence.probabilities is not None
    chances = sentence.probabilities.max(0)
    (extra,) = np.flatnonzero(computed & ~kept)
    assert chances[extra] == chances[~kept].max()
