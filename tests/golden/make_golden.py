"""Wrote `b9a4141/`: prepared data, configurations, stopped runs and exports of that commit.

    git checkout b9a4141   # with this file and tests/support/golden.py laid into it
    OMP_NUM_THREADS=1 PYTHONPATH=tests/support python tests/golden/make_golden.py

Run once, with the program at commit b9a4141, and never with a later one: the set is what later
programs must still read. It refuses to run where the set is there. `test_golden.py` is the test.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golden import (
    GOLDEN,
    TEXTS,
    contents,
    final_report,
    final_tensors,
    machine,
    predictions,
    scores,
)
from golden_configs import BASE, CONFIGS, OVERRIDES, PHASES, RUNS

from rss_rl.config import load_config, parse_config
from rss_rl.data.corpora.planted import Planted, PlantedSettings
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, Words
from rss_rl.inference.artifact import export_run
from rss_rl.training.run import train
from rss_rl.training.session import UpdateReport
from rss_rl.types import LabelSpec

ROWS = {"train": 40, "dev": 16, "test": 8}
NOT_NEEDED = ("tensorboard", "events.jsonl", "status.json", "run.lock")
"""Of a run: large, or about the machine that wrote it."""
EXPORTS = {"resan": "best", "hardkuma-disan": "latest"}
ANIMALS = ("otter", "robin", "mole", "pike", "hare", "swan")
DEEDS = ("slept", "sang", "dug", "swam", "ran")
MEETING = ("met", "called", "left")


@dataclass(frozen=True)
class Passages:
    """Passages of two to four sentences, 'the otter slept .', and a question 'who slept ?'."""

    name = "passages"
    sentences = 2

    def label_spec(self) -> LabelSpec:
        return LabelSpec("sentence")

    def splits(self) -> Mapping[str, tuple[Path, ...]]:
        return dict.fromkeys(ROWS, ())

    def read(self, split: str) -> Iterator[RawExample]:
        draw = random.Random(f"passages {split}")
        for row in range(ROWS[split]):
            count = draw.randint(2, 4)
            output = list(zip(draw.sample(ANIMALS, count), draw.sample(DEEDS, count), strict=True))
            label = draw.randrange(count)
            passage = Words(w for who, what in output for w in ("the", who, what, "."))
            marks = tuple(n for n in range(count) for _ in range(4))
            question = Words(("who", output[label][1], "?"))
            yield RawExample(f"{split}-{row}", (passage, question), label, marks=marks)


@dataclass(frozen=True)
class Cloze:
    """'@entity0 met @entity1 . @entity2 slept .' and '@placeholder met @entity1'."""

    name = "cloze"
    sentences = 2

    def label_spec(self) -> LabelSpec:
        return LabelSpec("candidate")

    def splits(self) -> Mapping[str, tuple[Path, ...]]:
        return dict.fromkeys(ROWS, ())

    def read(self, split: str) -> Iterator[RawExample]:
        draw = random.Random(f"cloze {split}")
        for row in range(ROWS[split]):
            verb, other = draw.choice(MEETING), ("@entity2", draw.choice(DEEDS))
            words = Words(("@entity0", verb, "@entity1", ".", *other, "."))
            label = draw.randrange(2)
            asked = ["@entity0", verb, "@entity1"]
            asked[2 * label] = "@placeholder"
            marks = (0, -1, 1, -1, 2, -1, -1)
            yield RawExample(f"{split}-{row}", (words, Words(asked)), label, marks=marks)


def make_data() -> None:
    few = PlantedSettings(**ROWS, max_distractors=20, words=3)
    names = ("sentences", "pairs", "passages", "cloze")
    sources = (
        Planted(pairs=False, settings=few),
        Planted(pairs=True, settings=few),
        Passages(),
        Cloze(),
    )
    for name, source in zip(names, sources, strict=True):
        with tempfile.TemporaryDirectory() as place:
            vectors = Path(place) / "vectors.txt"
            vectors.write_text("".join(vector_lines(source)))
            prepare(source, Path("prepared") / name, vectors=[vectors])


def vector_lines(source: Planted | Passages | Cloze) -> Iterator[str]:
    """Vectors far apart for most of the words, so that few updates tell words from each other."""
    words = {word for split in ROWS for row in source.read(split) for t in row.texts for word in t}
    draw = random.Random(1)
    for word in sorted(words):
        values = (f"{draw.gauss(0, 1):.2f}" for _ in range(8))
        if draw.random() < 0.9:
            yield f"{word} {' '.join(values)}\n"


def make_configs() -> None:
    folder = Path("configs")
    folder.mkdir()
    unseen = set(flat(parse_config({"data": "x", "phases": PHASES}, where="").model_dump()).items())
    for name, text in {"base": BASE, **CONFIGS}.items():
        (folder / f"{name}.yaml").write_text(text.lstrip("\n"))
        for suffix, overrides in OVERRIDES.get(name, {"": []}).items():
            config = load_config(folder / f"{name}.yaml", overrides)
            record = {"overrides": overrides, "config": config.model_dump(mode="json")}
            target = folder / f"{name}{suffix}.resolved.json"
            target.write_text(json.dumps(record, indent=1) + "\n")
            unseen &= set(flat(config.model_dump()).items())
    keys = sorted(key for key, _ in unseen if not key.startswith(("phases", "data")))
    assert not keys, f"never given another value than its default: {keys}"


def flat(tree: Any, where: str = "") -> dict[str, str]:
    if isinstance(tree, dict) and tree:
        return {
            k: v for key in tree for k, v in flat(tree[key], f"{where}.{key}".lstrip(".")).items()
        }
    return {where: repr(tree)}


def make_run(name: str, tree: dict[str, Any], updates: int) -> None:
    """Stop a run after so many updates."""
    made: list[UpdateReport] = []
    for event in train(
        parse_config(tree, where=name), Path("runs") / name, stop=lambda: len(made) >= updates
    ):
        if isinstance(event, UpdateReport):
            made.append(event)
    assert len(made) == updates
    for folder in (Path("runs") / name, Path("runs") / name / "all-tokens"):
        for part in NOT_NEEDED:
            if (folder / part).is_dir():
                shutil.rmtree(folder / part)
            (folder / part).unlink(missing_ok=True)
        if (folder / "checkpoints").is_dir():
            trim(folder / "checkpoints")
    if name != "resan":  # one run shows that metrics are continued
        shutil.rmtree(Path("runs") / name / "metrics")
        shutil.rmtree(Path("runs") / name / "all-tokens" / "metrics", ignore_errors=True)


def trim(checkpoints: Path) -> None:
    """Leave the checkpoints out that only the ends of earlier phases went back to."""
    marks = sorted(checkpoints.glob("BEST_PHASE_*"))
    for pointer in marks[:-1]:
        pointer.unlink()
    needed = {p.read_text().strip() for p in checkpoints.iterdir() if p.is_file()}
    for folder in checkpoints.glob("step-*"):
        if folder.name not in needed:
            shutil.rmtree(folder)


def expected(name: str, tree: dict[str, Any]) -> dict[str, Any]:
    """Of a stopped run, which is resumed to its end."""
    run, texts = Path("runs") / name, TEXTS[Path(tree["data"]).name]
    stopped = {"scores": scores(run), "predictions": predictions(run, texts)}
    list(train(parse_config(tree, where=name), run, resume=True))
    finished = {"tensors": final_tensors(run), "report": final_report(run)}
    return {"data": Path(tree["data"]).name, "stopped": stopped, "finished": finished}


def main() -> None:
    if GOLDEN.exists():
        sys.exit(f"{GOLDEN} is there already, and a later program must not write it anew")
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # runs name their data relative to it
        Path("set").mkdir()
        os.chdir("set")
        make_data()
        make_configs()
        for name, (tree, updates) in RUNS.items():
            make_run(name, tree, updates)
        for name, which in EXPORTS.items():
            export_run(Path("runs") / name, Path("exports") / name, which=which)
        shutil.copytree(".", "../copy")
        os.chdir("../copy")
        record = {"machine": machine(), "runs": {}, "exports": {}}
        record["prepared"] = {name: contents(Path("prepared") / name) for name in sorted(TEXTS)}
        for name in EXPORTS:
            texts = TEXTS[Path(RUNS[name][0]["data"]).name]
            record["exports"][name] = predictions(Path("exports") / name, texts)
        for name, (tree, _) in RUNS.items():
            record["runs"][name] = expected(name, tree)
        Path("../set/expected.json").write_text(json.dumps(record) + "\n")
        os.chdir("/")
        shutil.copytree(Path(place) / "set", GOLDEN)


if __name__ == "__main__":
    main()
