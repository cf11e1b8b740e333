"""Bias and variance of each policy update's gradient, at fixed points of a training.

    python tests/benchmarks/estimators.py RUN --steps 500 800 1100 --name trec [--tokens 8]

RUN is one of `policy.name=rss` with `checkpoint.keep=all`; its checkpoints are the points. The
objective is the expected log-likelihood of the labels of one batch, without costs. With --tokens
the batch is of texts of that length, of which all selections are scored, so that the true gradient
is known. The updates draw in turn, so that their times can be compared. Lines go to
results/estimators.csv, those of the name replaced; then the figure is drawn.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rss_rl.components import EVERYTHING, find_component
from rss_rl.config import LearnerConfig, OptimizerConfig, RewardConfig
from rss_rl.learners.updates import RewardBatch, UpdateSetup
from rss_rl.models.inputs import TensorBatch, tensor_batch
from rss_rl.results.scores import open_with_data
from rss_rl.reward_models.likelihood import ClassifierReward
from rss_rl.reward_models.reward_model import Rewards

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "examples"))


class Estimator(NamedTuple):
    """A policy update: component, options, K, whether the second half mirrors the first."""

    component: str
    options: dict[str, Any]
    selections: int
    antithetic: bool = False


ESTIMATORS = {
    "no baseline, K = 4": Estimator("reinforce", {"baseline": "none"}, 4),
    "leave-one-out, K = 2": Estimator("reinforce", {}, 2),
    "leave-one-out, K = 4": Estimator("reinforce", {}, 4),
    "leave-one-out, K = 8": Estimator("reinforce", {}, 8),
    "self-critical, K = 4": Estimator("reinforce", {"baseline": "self-critical"}, 4),
    "DisARM, K = 2": Estimator("rss_rl_examples.disarm:DISARM", {}, 2, True),
    "DisARM, K = 4": Estimator("rss_rl_examples.disarm:DISARM", {}, 4, True),
    "pathwise, K = 1": Estimator("pathwise", {}, 1),
    "pathwise, K = 4": Estimator("pathwise", {}, 4),
}
REFERENCE = "leave-one-out, K = 4"


class Point:
    """A batch, and the models of a checkpoint."""

    def __init__(self, run: Path, step: int, tokens: int | None, size: int) -> None:
        _, self.models, prepared, device = open_with_data(run, step, None, EVERYTHING)
        split = prepared.split("train")
        lengths = split.lengths()[:, 0]
        rows = np.arange(len(split)) if tokens is None else np.flatnonzero(lengths == tokens)
        rows = np.random.default_rng(0).permutation(rows)[:size]
        self.batch: TensorBatch = tensor_batch(split.batch(rows), device)
        self.score = ClassifierReward(self.models.classifier, device).gated_scores
        with torch.no_grad():
            self.inputs = self.models.policy_inputs(self.batch)
        self.parameters = list(self.models.policy.parameters())

    def rewards(self, selections: Tensor) -> Tensor:
        """log p(label), [K, B], of selections [K, B, 2, N]."""
        with torch.no_grad():
            [scores] = self.score(self.batch, [selections]).values()
        return scores.view(len(selections), -1)

    def distribution(self) -> Any:
        """The policy's, of the batch."""
        return self.models.policy(self.inputs[0])

    def exact(self) -> Tensor:
        """The gradient of the expected reward, by enumeration, float64 [P]."""
        width = self.batch.valid[0].shape[1]
        bits = torch.tensor(list(itertools.product([False, True], repeat=width)))
        every = bits[:, None, None].expand(-1, len(self.batch.labels), 2, -1)  # one bit a word
        log_probs = self.distribution().evaluate(every).log_prob.double().sum((-1, -2))
        expected = (log_probs.exp() * self.rewards(every)).sum(0).mean()
        gradients = torch.autograd.grad(expected, self.parameters)
        return torch.cat([each.flatten() for each in gradients]).double()

    def update(self, estimator: Estimator) -> Callable[[int], Tensor]:
        """Draws the gradient of an update from a seed, float64 [P], upwards."""
        setup = UpdateSetup(
            self.models.policy,
            LearnerConfig(policy=OptimizerConfig(clip_norm=None)),
            RewardConfig(sparsity_cost=0.0),
            uniforms=lambda batch, number: [self._uniforms(number, estimator)],
            gated=lambda: _Score(self.score),
        )
        component = find_component("policy_update", estimator.component)
        update = component.build(setup, component.parse(estimator.options))

        def drawn(number: int) -> Tensor:
            rollout = None
            if "gates" not in component.all_capabilities(component.parse(estimator.options)):
                with torch.no_grad():
                    drawn_from = self.distribution()
                    selections = drawn_from.sample(self._uniforms(number, estimator)).selection
                    thresholded = self.rewards(drawn_from.mode[None])[0, :, None]
                scores = self.rewards(selections)
                rewards = Rewards({"score": scores}, {"cost": torch.zeros_like(scores)[..., None]})
                needs = estimator.options.get("baseline") == "self-critical"
                rollout = RewardBatch([selections], rewards, thresholded if needs else None)
            update.gradients(self.batch, self.inputs, rollout, number=number, price=None)
            gradients = [each.grad for each in self.parameters if each.grad is not None]
            return -torch.cat([each.flatten() for each in gradients]).double()

        return drawn

    def _uniforms(self, number: int, estimator: Estimator) -> Tensor:
        size, width = self.batch.valid[0].shape
        half = estimator.selections // (2 if estimator.antithetic else 1)
        generator = torch.Generator().manual_seed(number)
        uniforms = torch.rand(half, size, 2, width, generator=generator)
        uniforms = uniforms.clamp(1e-6, 1 - 1e-6)
        return torch.cat([uniforms, 1 - uniforms]) if estimator.antithetic else uniforms


class _Score(NamedTuple):
    gated_scores: Any


def measure(point: Point, draws: int, exact: Tensor | None) -> dict[str, dict[str, float]]:
    """Of each update, by its name:

    noise    variance of its gradient, by the squared norm of the mean: Adam steps as far whatever
             the scale
    seconds  of CPU a draw
    cosine   between the mean and the true gradient, and scale, the ratio of their norms; NaN where
             that one is unknown
    """
    updates = {name: point.update(each) for name, each in ESTIMATORS.items()}
    size = sum(each.numel() for each in point.parameters)
    first, second = ({name: torch.zeros(size).double() for name in updates} for _ in "12")
    seconds = dict.fromkeys(updates, 0.0)
    for number, (name, draw) in itertools.product(range(draws), updates.items()):
        began = time.process_time()
        gradient = draw(number)
        seconds[name] += time.process_time() - began
        first[name] += gradient
        second[name] += gradient.square()
    results = {}
    for name in updates:
        mean = first[name] / draws
        variance = float((second[name] / draws - mean.square()).sum()) * draws / (draws - 1)
        # The mean of the draws is off the expectation by variance / draws.
        signal = float(mean.square().sum()) - variance / draws
        line = {"noise": variance / signal, "seconds": seconds[name] / draws}
        if exact is not None:
            line["cosine"] = float(torch.cosine_similarity(mean, exact, 0))
            line["scale"] = (signal / float(exact.square().sum())) ** 0.5
        results[name] = line
    return results


def draw_figure(lines: pd.DataFrame, file: Path) -> None:
    """Noise of the gradients that a second of compute draws, relative to the reference's."""
    from matplotlib import pyplot

    panels = list(lines.groupby(["place", "point"], sort=False))
    places = lines["place"].nunique()
    figure, axes = pyplot.subplots(
        places, len(panels) // places, figsize=(11, 1 + 3 * places), sharey=True, squeeze=False
    )
    for axis, ((place, point), panel) in zip(axes.flat, panels, strict=True):
        worth = panel["noise"] * panel["seconds"]
        worth /= float(worth[panel["row"] == REFERENCE].iloc[0])
        axis.barh(panel["row"], worth, color="#4878a8")
        axis.set_xscale("log")
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(f"{place}, {point} policy", fontsize=10)
    axes[0, 0].invert_yaxis()
    figure.supxlabel(f"noise x seconds, relative to {REFERENCE}; less is better", fontsize=10)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    """Measure at the points of a run."""
    parser = argparse.ArgumentParser(description="Gradients of policy updates at fixed points")
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, nargs=3, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--size", type=int, default=16, help="texts of the batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = HERE / "results" / "estimators.csv"
    lines = []
    for step, label in zip(options.steps, ("initial", "half-trained", "trained"), strict=True):
        point = Point(options.run, step, options.tokens, options.size)
        exact = None if options.tokens is None else point.exact()
        for name, results in measure(point, options.draws, exact).items():
            lines.append({"place": options.name, "point": label, "row": name, **results})
            print(*lines[-1].values(), flush=True)
    table = pd.DataFrame(lines)
    if file.is_file():
        before = pd.read_csv(file)
        table = pd.concat([before[before["place"] != options.name], table])
    table.to_csv(file, index=False, float_format="%.4g")
    draw_figure(table, HERE / "figures" / "estimators.png")


if __name__ == "__main__":
    main()
