"""Does training hold memory that grows with the data?

    python tests/benchmarks/memory.py --budget-mb 64 --json memory.json

Generates a corpus as large as the budget and one ten times as large, both streamed through
`rss_rl.data.prepare`; trains on each for one pass over the large one (so ten over the small one),
in one process, with sampled selections and a small model; and prints the anonymous memory of each
step. Pages of mapped files are counted apart: the system takes them back when it needs them. Each
measurement is a process of its own. Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from resident import resident_mb

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.types import LabelSpec

ROW_BYTES = 583
"""Of a generated row in a shard, about."""
WORDS, SHORTEST, LONGEST = 5000, 20, 60


class Generated:
    """Rows of 20 to 60 words, drawn as they are asked for; one word of the first ten decides."""

    name, sentences = "generated", 1

    def __init__(self, megabytes: float) -> None:
        self._rows = {"train": int(megabytes * 1e6 / ROW_BYTES), "dev": 256, "test": 256}

    def label_spec(self) -> LabelSpec:
        return LabelSpec("classes", ("no", "yes"))

    def splits(self) -> Mapping[str, tuple[Path, ...]]:
        return dict.fromkeys(self._rows, ())

    def read(self, split: str) -> Iterator[RawExample]:
        draw = np.random.default_rng([list(self._rows).index(split)])
        names = np.array([f"w{i:05d}" for i in range(WORDS)], dtype=object)
        for row in range(self._rows[split]):
            ids = draw.integers(10, WORDS, draw.integers(SHORTEST, LONGEST + 1))
            ids[0] = draw.integers(10)
            yield RawExample(f"{split}-{row}", (tuple(names[ids]),), ("no", "yes")[ids[0] % 2])


class Watch:
    """Samples the memory of this process from a thread, ten times a second."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            self.seen.append((time.monotonic(), *resident_mb()))

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=10)


def measured_preparation(folder: Path, megabytes: float, shard_mb: float) -> dict[str, Any]:
    """Prepare a corpus; what that took."""
    start, watch = time.monotonic(), Watch()
    manifest = prepare(Generated(megabytes), folder, dim=16, shard_mb=shard_mb)
    watch.stop()
    shards = manifest.splits["train"].shards
    return {
        "corpus_mb": round(sum(shard.bytes for shard in shards) / 1e6, 1),
        "shards": len(shards),
        "rows": manifest.splits["train"].rows,
        "peak_mb": round(max(anonymous for _, anonymous, _ in watch.seen), 1),
        "seconds": round(time.monotonic() - start, 1),
    }


def configuration(folder: Path, batch_size: int, updates: int) -> dict[str, Any]:
    """A small model that reads every batch twice, once as a sampler and once as a learner."""
    return {
        "data": str(folder),
        "batch_size": batch_size,
        "model": {"encoder": "mean", "hidden": 8},
        "policy": {"options": {"hidden": 8}},
        "learner": {"threads": 1},
        "sampler": {"selections": 2, "shards": 2},
        "evaluation": {"every": max(1, updates // 5), "selections": 1, "all_tokens": False},
        "checkpoint": {"every": max(1, updates // 5)},
        "phases": [{"name": "train", "supervised": True, "policy": True, "steps": updates}],
    }


def measured_training(folder: Path, run: Path, batch_size: int, updates: int) -> dict[str, Any]:
    """Train; anonymous memory at the start, a tenth, the peak and the end."""
    from rss_rl.config import parse_config
    from rss_rl.training.run import train
    from rss_rl.training.session import UpdateReport

    config = parse_config(configuration(folder, batch_size, updates), where="benchmark")
    marks: dict[int, float] = {}
    last, watch = 0.0, Watch()
    for event in train(config, run):
        if isinstance(event, UpdateReport):
            marks[event.update] = last = time.monotonic()
    watch.stop()
    tenth = marks[max(1, updates // 10)]
    training = [sample for sample in watch.seen if marks[1] <= sample[0] <= last]
    later = [anonymous for at, anonymous, _ in training if at >= tenth]
    return {
        "updates": updates,
        "examples": updates * batch_size,
        "at_start_mb": round(training[0][1], 1),
        "at_tenth_mb": round(later[0], 1),
        "peak_mb": round(max(anonymous for _, anonymous, _ in training), 1),
        "at_end_mb": round(later[-1], 1),
        "growth_after_tenth_mb": round(max(later) - later[0], 1),
        "mapped_peak_mb": round(max(mapped for _, _, mapped in training), 1),
        "seconds": round(last - marks[1], 1),
    }


def apart(*arguments: object) -> dict[str, Any]:
    """What a measurement of this script in another process printed."""
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(work: Path, budget_mb: float, batch_size: int) -> dict[str, Any]:
    """Both corpora, prepared and trained on for as many updates."""
    corpora = {"small": budget_mb, "large": 10 * budget_mb}
    shard_mb = budget_mb / 4
    report: dict[str, Any] = {"budget_mb": budget_mb, "batch_size": batch_size}
    for name, megabytes in corpora.items():
        done = apart("prepare", work / name, megabytes, shard_mb)
        report[name] = {"prepare": done}
        print(f"{name}: prepared {done}", flush=True)
    updates = -(-report["large"]["prepare"]["rows"] // batch_size)
    for name in corpora:
        done = apart("train", work / name, work / f"{name}-run", batch_size, updates)
        report[name]["train"] = done
        print(f"{name}: trained {done}", flush=True)
    peaks = {name: report[name]["train"]["peak_mb"] for name in corpora}
    report["peak_large_minus_small_mb"] = round(peaks["large"] - peaks["small"], 1)
    return report


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["prepare"]:
        folder, megabytes, shard_mb = sys.argv[2:]
        print(json.dumps(measured_preparation(Path(folder), float(megabytes), float(shard_mb))))
        return
    if sys.argv[1:2] == ["train"]:
        folder, run, batch_size, updates = sys.argv[2:]
        done = measured_training(Path(folder), Path(run), int(batch_size), int(updates))
        print(json.dumps(done))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--budget-mb", type=float, default=64.0)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--work", type=Path, help="where the corpora are made (11 times budget)")
    parser.add_argument("--json", type=Path, help="file to write the report to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        report = compare(Path(work), options.budget_mb, options.batch_size)
    text = json.dumps(report, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
