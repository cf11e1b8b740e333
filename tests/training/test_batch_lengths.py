"""Whether batches are of similar or of mixed lengths is chosen once, where a run begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from rss_rl.config import RunConfig
from rss_rl.training import trainer
from rss_rl.training.run import train


class RecordedOrder(trainer.BatchOrder):
    """Notes whether batches are made by length."""

    by_length: list[bool]

    def __init__(self, *args: object, by_length: bool = True, **kwargs: object) -> None:
        self.by_length.append(by_length)
        super().__init__(*args, by_length=by_length, **kwargs)  # type: ignore[arg-type]


@pytest.fixture
def by_length(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    recorded: list[bool] = []
    monkeypatch.setattr(RecordedOrder, "by_length", recorded, raising=False)
    monkeypatch.setattr(trainer, "BatchOrder", RecordedOrder)
    return recorded


@pytest.fixture
def steered(tiny_config: RunConfig) -> RunConfig:
    reward = tiny_config.reward.model_copy(update={"target_share": 0.4})
    return tiny_config.model_copy(update={"reward": reward})


def test_a_target_share_is_held_on_batches_of_mixed_lengths(
    tiny_config: RunConfig, steered: RunConfig, tmp_path: Path, by_length: list[bool]
) -> None:
    list(train(tiny_config, tmp_path / "price", stop=lambda: True))
    list(train(steered, tmp_path / "share", stop=lambda: True))
    assert by_length == [True, False]
    named = steered.model_copy(update={"batch_lengths": "similar"})
    list(train(named, tmp_path / "named", stop=lambda: True))
    assert by_length[2:] == [True]


def test_the_comparison_with_all_tokens_reads_the_same_batches(
    steered: RunConfig, tmp_path: Path, by_length: list[bool]
) -> None:
    list(train(steered, tmp_path / "run"))
    assert by_length == [False, False]
