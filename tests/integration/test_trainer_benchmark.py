"""The benchmark beside the Trainer of `transformers`: what it writes, and how it goes on."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_transformers
import transformer_trainer

from rss_rl.config import RunConfig


def test_what_is_written_is_not_measured_again(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = tiny_transformers.save(tmp_path / "bert"), tmp_path / "out"
    common = ["--pretrained", str(folder), "--data", tiny().data, "--out", str(out)]

    def measure(what: str, *options: str) -> list[dict[str, float]]:
        arguments = ["transformer_trainer.py", what, *common, "--batch-size", "16", *options]
        monkeypatch.setattr("sys.argv", arguments)
        transformer_trainer.main()
        return [json.loads(line) for line in (out / f"{what}.jsonl").read_text().splitlines()]

    lines = measure("accuracy", "--epochs", "2")
    assert [line["system"] for line in lines] == ["trainer", "ours"]
    assert [len(line["epochs"]) for line in lines] == [2, 2]
    assert all(line["dev"] >= max(line["epochs"]) for line in lines)
    assert measure("accuracy", "--epochs", "2") == lines

    turns = ("--updates", "2", "--turns")
    first = measure("seconds", *turns, "1")
    both = measure("seconds", *turns, "2")
    assert both[:1] == first
    assert [line["texts"] for line in both] == [32, 32]
    with (out / "seconds.csv").open() as file:
        whole, parts = csv.DictReader(file)
    ours, theirs = (sum(line[system] for line in both) for system in ("ours", "trainer"))
    assert float(whole["ratio"]) == pytest.approx(ours / theirs, abs=1e-3)
    assert float(whole["low"]) <= float(whole["ratio"]) <= float(whole["high"])
    assert parts["system"] == "trainer_parts"


def test_parts_hold_every_piece(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    given = transformer_trainer.parsed(
        ["seconds", "--pretrained", str(tiny_transformers.save(tmp_path)), "--data", tiny().data]
    )
    peer = transformer_trainer.Peer(given, 1, 0, str(tmp_path))
    train = transformer_trainer.open_prepared(tiny().data).split("train")
    rows = np.arange(8)
    cut, parts = (peer.items(train, rows, parts=each) for each in (False, True))
    letters = sum(len("".join(train.words(row)[0])) for row in rows)
    assert len(cut) == len(rows)
    assert max(len(item["input_ids"]) for item in cut) == tiny_transformers.LONGEST
    assert sum(len(item["input_ids"]) - 2 for item in parts) == letters
