"""Selections that are asked for, beside those of the policy."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from readers import TASKS, reader

from rss_rl.errors import ConfigError, DataError
from rss_rl.inference.model import Chosen, keep_share, keep_words
from rss_rl.types import Array


def chosen_of(task: str) -> Chosen:
    model = reader(task, seed=3)
    return model.choose([model.encode(TASKS[task][2])])


def kept(chosen: Chosen) -> list[Array]:
    return [selection.any(1).numpy() for selection in chosen.selections]


@pytest.mark.parametrize("task", TASKS)
def test_the_words_of_the_policy_give_its_own_selection(task: str) -> None:
    chosen = chosen_of(task)
    again = keep_words(chosen, kept(chosen))
    for before, after in zip(chosen.selections, again.selections, strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_a_share_keeps_the_likeliest_words_of_each_text(share: float) -> None:
    chosen = chosen_of("pair")
    assert chosen.probabilities is not None
    found = kept(keep_share(chosen, share))
    for bits, chances in zip(found, chosen.probabilities, strict=True):
        scores = chances.amax(1)[0].numpy()
        assert bits.sum() == max(1, round(share * len(scores)))
        if not bits.all():
            assert scores[bits[0]].min() >= scores[~bits[0]].max()


def test_without_a_policy_there_is_no_share() -> None:
    model = reader("classes", selects=False)
    with pytest.raises(ConfigError, match="no policy"):
        keep_share(model.choose([model.encode(["w3 w4"])]), 0.5)


def test_predictions_and_selections_take_a_share() -> None:
    model = reader("classes", seed=3)
    text = TASKS["classes"][2]
    (few,), (all_,) = (model.predict(text, share=share) for share in (0.1, 1.0))
    assert sum(sentence.kept.sum() for sentence in few.sentences) == 1
    assert all(sentence.kept.all() for sentence in all_.sentences)
    ((selected,),) = model.select(text, share=0.1)
    assert (selected.kept == few.sentences[0].kept).all()
    with pytest.raises(ConfigError, match="share"):
        model.predict(text, share=1.5)


def test_tables_and_mappings_are_not_lists_of_texts() -> None:
    model = reader("classes", seed=3)
    for table in (pd.DataFrame({"text": ["a"], "stars": [1]}), {"text": ["a"]}, "a"):
        with pytest.raises(DataError, match="expected a list of examples"):
            model.predict(table)  # type: ignore[arg-type]
