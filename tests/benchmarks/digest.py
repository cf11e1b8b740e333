"""Digests of small training runs through every phase, to compare two commits on one machine.

    PYTHONPATH=. python tests/benchmarks/digest.py --out before.json        # at the commit before
    PYTHONPATH=. python tests/benchmarks/digest.py --compare before.json    # at the commit after

Each case is a shipped configuration made small, trained on generated texts for some ten updates a
phase. Of each run it hashes all tensors of the last checkpoint (classifier, policy, optimiser
states, averages) and the values of every metric of the dev split, the updates and the rollouts.
A change of structure leaves all of them equal to the bit; a change of numbers does not.

`--ignore-names` compares tensors without their names, and the metrics that both sides have: for a
change that renames them. `--no-ray` leaves out the cases that start Ray; `--only NAME` runs one
case (repeatable). Exit status 1: something differs. Digests are of one machine: others round
floats differently. Two minutes of one core.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow.dataset import dataset
from safetensors.numpy import load_file

import rss_rl

UPDATES = 10
METRICS = ("dev/", "train/", "policy/", "reward/", "constraint/", "selection/")
SMALL = {"model.hidden": 8, "policy.options.hidden": 8, "batch_size": 16, "learner.threads": 1,
         "evaluation.every": 5, "evaluation.batch_size": 32, "evaluation.all_tokens": False,
         "checkpoint.every": 7, "checkpoint.keep": "all", "sampler.backend": "local"}  # fmt: skip
PHASES = {"demo": 3, "movies": 4, "own": 4, "own_context": 4, "sick_faithful": 2,
          "transformer/sentences": 3}  # fmt: skip
RAY = {"sampler.backend": "ray", "sampler.actors": 2, "sampler.shards": 2}
LAG = {"sampler.max_policy_lag": 2}
OWN = {"reward.target_share": 0.4}

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "demo": ("demo", "planted", {"evaluation.all_tokens": True}),
    "sick_faithful": ("sick_faithful", "pairs", {}),
    "movies": ("movies", "long", {}),
    "own": ("own", "short", OWN),
    "own_resumed": ("own", "short", OWN),
    "own_context": ("own_context", "short", {}),
    "lag": ("demo", "planted", LAG),
    "iterative": ("demo", "planted", {"policy.name": "iterative"}),
    "ppo-clip": ("demo", "planted", LAG | {"learner.policy_update": "ppo-clip"}),
    "hardkuma": ("own", "short", OWN | {"policy.name": "hardkuma"}),
    "gumbel": ("own", "short", OWN | {"policy.name": "gumbel"}),
    "top-k": ("demo", "short", {"policy.name": "top-k", "policy.options.share": 0.3}),
    "transformer": ("transformer/sentences", "short", {}),
    "ray": ("demo", "planted", RAY | {"evaluation.all_tokens": True}),
    "ray_learners": ("demo", "planted", RAY | {"learner.actors": 2}),
}
"""By name: the configuration, its data, and the settings that differ from `SMALL`."""
TWINS = {"own_resumed": "own", "ray": "demo"}
"""Cases that must equal others: however often stopped, on however many samplers."""


def rows(kind: str, seed: int, count: int) -> list[dict[str, Any]]:
    """Generated texts of one kind: a few words of each decide its label."""
    draw = np.random.default_rng([seed, count])
    words = {"short": (4, 14), "long": (40, 90), "pairs": (4, 10)}[kind]
    found = []
    for _ in range(count):
        texts = [[f"w{n}" for n in draw.integers(0, 40, draw.integers(*words))] for _ in range(2)]
        for text in texts:
            for place in draw.choice(len(text), 2, replace=False):
                text[place] = draw.choice(["good", "bad"])
        good = [sum(word == "good" for word in text) for text in texts]
        if kind == "pairs":
            score = 5.0 - abs(good[0] - good[1]) + 0.1 * draw.random()
            found.append({"text": " ".join(texts[0]), "b": " ".join(texts[1]), "label": score})
        else:
            found.append({"text": " ".join(texts[0]), "label": ("low", "mid", "high")[good[0]]})
    return found


def prepare(kind: str, folder: Path) -> Path:
    """Prepared data of one kind under `folder`, made once."""
    path = folder / kind
    if path.exists():
        return path
    if kind == "planted":
        options = {"train": 96, "dev": 32, "test": 32, "max_distractors": 20}
        rss_rl.prepare("planted", out=path, dim=8, options=options)
    else:
        named = {"text_b": "b", "task": "score", "low": 1, "high": 6} if kind == "pairs" else {}
        splits = {"dev": rows(kind, 1, 32), "test": rows(kind, 2, 32)}
        train = rows(kind, 0, 96)
        rss_rl.prepare(train, out=path, text="text", label="label", dim=8, **splits, **named)
    return path


def train(name: str, folder: Path) -> Path:
    """Train one case; returns the directory of its run."""
    base, kind, changes = CASES[name]
    steps = {f"phases.{number}.steps": UPDATES for number in range(PHASES[base])}
    given = {"data": str(prepare(kind, folder)), **steps, **SMALL, **changes}
    if base == "transformer/sentences":
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
        import tiny_transformers

        tiny_transformers.save(folder / "bert")
        given["model.encoder.options.pretrained"] = str(folder / "bert")
    run, reports = folder / "runs" / name, 0

    def stop_midway(_: object) -> None:
        nonlocal reports
        reports += 1
        if reports == 2 * UPDATES:
            os.kill(os.getpid(), signal.SIGINT)

    resumes = name.endswith("_resumed")
    begun = rss_rl.train(base, given, out=run, callbacks=[stop_midway] if resumes else [])
    if resumes:
        assert not begun.finished, "it was to be stopped midway"
        begun.resume()
    return run


def _sha(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def digest(run: Path) -> dict[str, Any]:
    """SHA-256 of a run's last checkpoint, of each tensor without its name, and of each metric."""
    checkpoints = run / "checkpoints"
    last = checkpoints / (checkpoints / "LATEST").read_text().strip()
    tensors = {
        name: f"{value.dtype.str} {value.shape} ".encode() + value.tobytes()
        for file in sorted(last.rglob("*.safetensors"))
        for name, value in load_file(file).items()
    }
    metrics: dict[str, list[Any]] = {}
    for row in dataset(run / "metrics").to_table().sort_by("step").to_pylist():
        if row["tag"].startswith(METRICS):
            metrics.setdefault(row["tag"], []).append((row["step"], row["value"]))
    return {
        "tensors": _sha(*(name.encode() + tensors[name] for name in sorted(tensors))),
        "contents": sorted(_sha(value)[:16] for value in tensors.values()),
        "metrics": {tag: _sha(repr(values).encode()) for tag, values in sorted(metrics.items())},
    }


def differences(before: dict[str, Any], after: dict[str, Any], *, names: bool) -> list[str]:
    """What two digests differ in, in words."""
    gone, new = (
        sum((Counter(one["contents"]) - Counter(other["contents"])).values())
        for one, other in ((before, after), (after, before))
    )
    found = [f"{gone} tensors gone, {new} new"] if gone or new else []
    if names and not found and before["tensors"] != after["tensors"]:
        found = ["names of tensors"]
    old, now = before["metrics"], after["metrics"]
    tags = old.keys() | now.keys() if names else old.keys() & now.keys()
    return found + [tag for tag in sorted(tags) if old.get(tag) != now.get(tag)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--compare", type=Path, help="JSON file of another commit")
    parser.add_argument("--only", action="append", choices=CASES, help="a case; repeatable")
    parser.add_argument("--ignore-names", action="store_true", help="tensors by contents alone")
    parser.add_argument("--no-ray", action="store_true", help="leave out cases that start Ray")
    asked = parser.parse_args()
    before = json.loads(asked.compare.read_text()) if asked.compare else {}
    found, status = {}, 0
    with tempfile.TemporaryDirectory(prefix="rss-rl-digest-") as scratch:
        for name in asked.only or CASES:
            if asked.no_ray and name.startswith("ray"):
                continue
            begun = time.monotonic()
            with redirect_stdout(io.StringIO()):
                found[name] = digest(train(name, Path(scratch)))
            said = [f"{name:15}", found[name]["tensors"][:16], f"{time.monotonic() - begun:5.1f} s"]
            twin = TWINS.get(name, "")
            for what, other in (("before", before.get(name)), (twin, found.get(twin))):
                if other is not None:
                    wrong = differences(other, found[name], names=not asked.ignore_names)
                    said.append(f"differs from {what}: {wrong}" if wrong else f"equals {what}")
                    status |= bool(wrong)
            print(*said, flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1))
    return status


if __name__ == "__main__":
    sys.exit(main())
