"""Reward against sentences and against time: our learner, SB3's PPO, RLlib's PPO and IMPALA.

    make peers && python tests/benchmarks/comparison.py    # 6 systems, 3 minutes each at most

All select words of the demo's sentences for a classifier that stays as it is: that of a finished
demo, `--demo`, which is made first where there is none (two minutes more). Sentence, reward and
network are the same for all, and so is what each may spend: --seconds of time, --sentences scored.
Batches, passes, learning rate and entropy cost are each system's own, see SETTINGS: ours are the
demo's, those of the others the first to --goal of those of TRIED that end within .005 of the best;
`--tune` goes through them with the next seed. One after another, each on one thread and RLlib's
IMPALA on a second one for its sampler. RLlib's start is not counted. The reward is that of what was
sampled to learn from.

OUT/comparison.json (tuning.json) holds the curves, [sentences, seconds, reward], of the systems
that are done: the command continues from it. Also written: comparison.png; the table is printed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peer_own import Pipeline
from peer_sb3 import SB3
from peer_task import ENVS, PYTHON, TRICK, Tuning
from plotting import COLOURS, figure_of

from rss_rl.durable import replace_file

Curve = list[list[float]]
WINDOW = 4096
"""Sentences over which a reward is averaged."""


@dataclass(frozen=True)
class System:
    """One line of the comparison.

    kind       `ours`, `SB3` or an algorithm of RLlib
    number     selections a sentence of ours; sentences an episode of RLlib's
    tuning     see `Tuning`
    """

    kind: str
    number: int
    tuning: Tuning


SETTINGS = {
    "ours": System("ours", 1, Tuning(256, 256, 1, 4e-3, 0.05)),
    "ours, 4 selections a sentence": System("ours", 4, Tuning(256, 256, 1, 4e-3, 0.05)),
    "SB3 PPO": System("SB3", 1, Tuning(512, 256, 4, 3e-3, 0.0)),
    "RLlib PPO": System("PPO", 1, Tuning(512, 256, 4, 1e-3, 6e-4)),
    "RLlib IMPALA": System("IMPALA", 1, Tuning(256, 256, 1, 3e-3, 6e-4)),
    f"RLlib IMPALA, {TRICK} sentences an episode": System(
        "IMPALA", TRICK, Tuning(256, 256, 1, 3e-3, 6e-4)
    ),
}


RATES, COSTS = (1e-3, 3e-3, 1e-2), (0.0, 6e-4)
TRIED = {
    "SB3 PPO": [Tuning(n, 256, 4, r, c) for n in (512, 1024) for r in RATES for c in COSTS],
    "RLlib PPO": [Tuning(n, 256, 4, r, 6e-4) for n in (512, 1024) for r in RATES],
    "RLlib IMPALA": [Tuning(n, n, 1, r, 6e-4) for n in (256, 512) for r in RATES],
}
"""What `--tune` tries of each; with 16 sentences an episode IMPALA has what it has with one."""


@dataclass(frozen=True)
class Budget:
    """What each system may spend: seconds, sentences; and the demo's run and the seed."""

    seconds: float
    sentences: int
    demo: str
    seed: int


def own_curve(system: Any, rewards: list[float], seconds: float, most: int) -> Curve:
    """Updates until the time is over or `most` sentences are seen; a point each."""
    started, steps, points = time.perf_counter(), 0, []
    while time.perf_counter() - started < seconds and steps < most:
        before = len(rewards)
        steps += system.train()
        points.append([steps, time.perf_counter() - started, float(np.mean(rewards[before:]))])
    return points


def rllib_curve(system: System, budget: Budget) -> Curve:
    """What the other interpreter prints."""
    here = Path(__file__).resolve().parent
    command = [
        str(PYTHON), str(here / "peer_rllib.py"), system.kind, "--sentences", str(system.number),
        "--reward", budget.demo, "--seconds", str(budget.seconds), "--seed", str(budget.seed),
        "--steps", str(budget.sentences), "--tuning", json.dumps(asdict(system.tuning)),
    ]  # fmt: skip
    paths = os.pathsep.join([str(here), str(here.parents[1])])
    variables = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True,
        timeout=900 + 3 * budget.seconds,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def curve_of(system: System, budget: Budget) -> Curve:
    """A system's curve."""
    if system.kind not in ("ours", "SB3"):
        return rllib_curve(system, budget)
    made: Pipeline | SB3 = (
        Pipeline(budget.demo, system.number, budget.seed, system.tuning)
        if system.kind == "ours"
        else SB3(ENVS, budget.demo, budget.seed, system.tuning)
    )
    return own_curve(made, made.rewards, budget.seconds, budget.sentences)


def curves(
    path: Path, systems: dict[str, System], budget: Budget, measure: Any = curve_of
) -> Iterator[dict[str, Curve]]:
    """All that is known after each system; one that the file has is not run again.

    Raises:
        ValueError: the file is of another budget.
    """
    done: dict[str, dict[str, Any]] = {}
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["budget"] != asdict(budget):
            raise ValueError(f"{path} is of another budget, {kept['budget']}: give another --out")
        done = kept["done"]
    for name, system in systems.items():
        how = asdict(system)
        if name not in done or done[name]["system"] != how:
            done[name] = {"system": how, "curve": measure(system, budget)}
            replace_file(path, json.dumps({"budget": asdict(budget), "done": done}) + "\n")
        yield {known: done[known]["curve"] for known in systems if known in done}


def smoothed(curve: Curve) -> Curve:
    """The same points, with the mean reward of the last WINDOW sentences at each."""
    points = np.array(curve)
    seen = np.diff(points[:, 0], prepend=0.0)
    known = np.isfinite(points[:, 2])
    paid = np.where(known, points[:, 2], 0.0) * seen
    means = []
    for k, (steps, _, _) in enumerate(curve):
        recent = slice(int(np.searchsorted(points[:, 0], steps - WINDOW, "right")), k + 1)
        weight = (seen * known)[recent].sum()
        means.append(float(paid[recent].sum() / weight) if weight else float("nan"))
    return [[*point[:2], mean] for point, mean in zip(curve, means, strict=True)]


def reached(curve: Curve, goal: float) -> tuple[float, float] | None:
    """Sentences and seconds until the reward was first `goal`; None if never."""
    first = itertools.dropwhile(lambda point: not point[2] >= goal, curve)
    for steps, seconds, _ in first:
        return steps, seconds
    return None


def table(found: dict[str, Curve], goal: float) -> str:
    """A line of Markdown for each system."""
    lines = [
        f"| | sentences/s | last reward | sentences to {goal:g} | seconds to {goal:g} |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, curve in found.items():
        (steps, seconds, reward), when = smoothed(curve)[-1], reached(smoothed(curve), goal)
        said = "| – | –" if when is None else f"| {when[0]:,.0f} | {when[1]:.1f}"
        lines.append(f"| {name} | {steps / seconds:,.0f} | {reward:.3f} {said} |")
    return "\n".join(lines)


def draw(found: dict[str, Curve], path: Path) -> None:
    """Two panels with one legend."""
    figure, panels = figure_of(1, 2)
    for panel, place, label in zip(panels, (0, 1), ("sentences", "seconds"), strict=True):
        for (name, curve), (colour, _) in zip(found.items(), COLOURS, strict=False):
            points = np.array(smoothed(curve))
            panel.plot(points[:, place], points[:, 2], color=colour, label=name)
        panel.set(xlabel=label, xscale="log", ylabel="reward, nats")
        panel.grid(alpha=0.3)
    panels[1].legend(fontsize=8)
    figure.savefig(path, dpi=120)


def tried(names: Sequence[str]) -> dict[str, System]:
    """The settings of TRIED for those of `names` that it has, under names that tell them."""
    return {
        f"{name}, {tuning.batch} a batch, rate {tuning.learning_rate:g}, "
        f"entropy {tuning.entropy_cost:g}": replace(SETTINGS[name], tuning=tuning)
        for name in names
        for tuning in TRIED.get(name, [])
    }


def make_demo(run: Path) -> None:
    """The demo whose classifier pays, unless it is there."""
    if (run / "report.json").exists():
        return
    command = [sys.executable, "-m", "rss_rl.cli.main", "demo", "--run-dir", str(run)]
    subprocess.run([*command, "sampler.backend=local", "evaluation.all_tokens=false"], check=True)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--demo", type=Path, default=Path("runs/demo"), help="its run")
    parser.add_argument("--seconds", type=float, default=180.0, help="longest, of each system")
    parser.add_argument("--sentences", type=int, default=400_000, help="most, of each system")
    parser.add_argument("--goal", type=float, default=-0.2, help="reward of the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--tune", action="store_true", help="try settings of the others instead")
    parser.add_argument("--out", type=Path, default=Path("comparison"), help="directory")
    return parser.parse_args()


def main() -> None:
    """Measure what is missing, print, write."""
    given = parse()
    torch.set_num_threads(1)
    make_demo(given.demo)
    given.out.mkdir(parents=True, exist_ok=True)
    seed = given.seed + given.tune
    budget = Budget(given.seconds, given.sentences, str(given.demo.resolve()), seed)
    systems = tried(given.only) if given.tune else {name: SETTINGS[name] for name in given.only}
    kept = given.out / ("tuning.json" if given.tune else "comparison.json")
    try:
        for found in curves(kept, systems, budget):
            if not given.tune:
                draw(found, given.out / "comparison.png")
            print(table(found, given.goal), flush=True)
    except ValueError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
