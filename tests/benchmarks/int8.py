"""What int8 costs in points and gains in time: both ONNX graphs of a run, on a split of its data.

    python tests/benchmarks/int8.py RUN --split test

RUN has a pretrained transformer as classifier, and its data lie where it was trained. Texts are
read in batches of 32, in the order of their length, in turns by either graph. One thread; CPU time.
"""

from __future__ import annotations

__all__: list[str] = []

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.inference.artifact import INT8_FILE, ONNX_FILE
from rss_rl.inference.onnx_int8 import write_with_int8
from rss_rl.rollouts.snapshot import open_data
from rss_rl.training.trained_models import open_models
from rss_rl.types import Array

_BATCH = 32


def graphs(run: Path, folder: Path) -> tuple[RunConfig, dict[str, Any]]:
    """Sessions of the exact graph and of the rounded one."""
    import onnxruntime

    config, models, inputs = open_models(run)
    write_with_int8(models, inputs, config, folder / ONNX_FILE)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    names = {"float32": ONNX_FILE, "int8": INT8_FILE}
    return config, {
        name: onnxruntime.InferenceSession(str(folder / file), options)
        for name, file in names.items()
    }


def batches(prepared: Prepared, split: str) -> list[tuple[dict[str, Array], Array]]:
    """Token ids by the graph's names, and labels."""
    examples = prepared.split(split)
    rows = np.argsort(
        [len(examples.batch(np.array([row])).tokens[0][0]) for row in range(len(examples))]
    )
    found = []
    for start in range(0, len(rows), _BATCH):
        batch = examples.batch(np.sort(rows[start : start + _BATCH]))
        given = dict(zip(("tokens", "tokens_b"), batch.tokens, strict=False))
        found.append((given, batch.labels))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", default="test")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config, sessions = graphs(given.run, Path(folder))
        right, seconds = dict.fromkeys(sessions, 0), dict.fromkeys(sessions, 0.0)
        predicted: dict[str, list[Array]] = {name: [] for name in sessions}
        read = batches(open_data(config), given.split)
        for tokens, labels in read:
            for name, session in sessions.items():
                started = time.process_time()
                logits = session.run(["logits"], tokens)[0]
                seconds[name] += time.process_time() - started
                predicted[name].append(logits.argmax(1))
                right[name] += int((predicted[name][-1] == labels).sum())
        texts = sum(len(labels) for _, labels in read)
        for name in sessions:
            size = (Path(folder) / {"float32": ONNX_FILE, "int8": INT8_FILE}[name]).stat().st_size
            print(
                f"{name}: {right[name] / texts:.1%} of {texts} right,"
                f" {texts / seconds[name]:.0f} texts a second, {size / 1e6:.0f} MB"
            )
        both = zip(predicted["float32"], predicted["int8"], strict=True)
        other = sum(int((exact != rounded).sum()) for exact, rounded in both)
        times = seconds["float32"] / seconds["int8"]
        print(f"other predictions: {other} of {texts}; {times:.2f} times as fast")


if __name__ == "__main__":
    main()
