"""A sparsity-accuracy frontier as a table: every policy at every target share or lambda.

Its runs are planned, trained, resumed and read like those of any table. frontier.md, frontier.csv
and frontier.png are written next to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.compute as pc

from rss_rl.components import default_estimator, find_component
from rss_rl.config import EstimatorConfig, RunConfig, parse_section, parse_value
from rss_rl.errors import ConfigError
from rss_rl.logs.metrics import read_metrics
from rss_rl.metrics.measures import task_measures
from rss_rl.results import output
from rss_rl.results.summary import Spread
from rss_rl.results.tables.hparams import write_hparams
from rss_rl.results.tables.plan import Plan, state_of
from rss_rl.results.tables.results import RowResult, collect_results
from rss_rl.results.tables.spec import Row, Table, heading, percent_scale

_ALL_TOKENS = "all-tokens"


@dataclass(frozen=True)
class Sweep:
    """The points of a frontier.

    policies  names, as in a configuration
    shares    target shares, each in (0, 1)
    costs     values of lambda; if shares are given too, only for policies that learn through gates
    seeds     per point
    """

    policies: tuple[str, ...]
    shares: tuple[float, ...] = ()
    costs: tuple[float, ...] = ()
    seeds: int = 3

    def __post_init__(self) -> None:
        if not self.shares and not self.costs:
            raise ConfigError(
                "a frontier needs target shares or values of lambda",
                remedy="Give --shares, --costs or both",
            )
        if not all(0 < share < 1 for share in self.shares):
            raise ConfigError("a target share lies between 0 and 1", where="--shares")
        if any(cost < 0 for cost in self.costs):
            raise ConfigError("a sparsity cost is at least 0", where="--costs")


def frontier_table(config: str, overrides: Sequence[str], base: RunConfig, sweep: Sweep) -> Table:
    """The table of a sweep over the configuration `config` with `overrides`.

    Args:
        base: that configuration, loaded.

    Raises:
        ConfigError: the sweep does not fit the configuration.
    """
    pairs = (override.partition("=") for override in overrides)
    settings = {key: parse_value(text, where=key) for key, _, text in pairs}
    rows = [
        _point(base, policy, *setting)
        for policy in sweep.policies
        for setting in _settings(base, sweep, policy)
    ]
    if sweep.shares and sweep.costs and not any("-cost-" in row["name"] for row in rows):
        raise ConfigError(
            "all of these policies have target shares: no cost would be tried",
            where="--costs",
            remedy="Leave out --costs or --shares",
        )
    if whole := _all_tokens(base):
        rows.append(whole)
    tree = {
        "title": f"Sparsity and accuracy: {Path(config).stem}",
        "note": "Every point is a policy at a target share or a sparsity cost.",
        "metrics": task_measures(),
        "seeds": sweep.seeds,
        "settings": {"evaluation.all_tokens": False},
        "datasets": [
            {
                "name": _slug(Path(base.data).name),
                "prepared": base.data,
                "bases": {"own": {"config": config, "settings": settings}},
            }
        ],
        "rows": rows,
    }
    return parse_section(Table, tree, where="frontier")


def setting_of(row: Row) -> tuple[str, float | None]:
    """Policy of a row, and its target share or sparsity cost.

    For the row that reads every token: `all tokens`, and None.
    """
    if row.name == _ALL_TOKENS:
        return "all tokens", None
    given = row.settings.get("reward.target_share") or row.settings.get("reward.sparsity_cost")
    name, options = row.settings["policy.name"], row.settings["policy.options"]
    policy = find_component("policy", name)
    if policy.can("budget"):
        given = options["share"]
    if policy.can("random"):
        given = 1 - (1 - options["probability"]) ** 2
    return name, given


def _slug(text: str) -> str:
    """A text as a valid name of a row or dataset."""
    return re.sub(r"[^a-z0-9.-]", "-", text.lower()).strip("-.")[:60] or "data"


def _settings(base: RunConfig, sweep: Sweep, policy: str) -> list[tuple[str, float]]:
    if sweep.shares and (not sweep.costs or not _learns_through_gates(base, policy)):
        return [("share", value) for value in sweep.shares]
    return [("cost", value) for value in sweep.costs]


def _point(base: RunConfig, policy: str, what: str, value: float) -> dict[str, Any]:
    component = find_component("policy", policy)
    known = component.options.model_fields
    options = {name: value for name, value in base.policy.options.items() if name in known}
    row: dict[str, Any] = {
        "name": f"{_slug(policy)}-{what}-{value:g}",
        "label": f"{policy}, {what} {value:g}",
        "mode": "thresholded",
        "settings": {"policy.name": policy, "policy.options": options},
    }
    given_a_share = component.can("random") or component.can("budget")
    if not (component.can("learns") or given_a_share):
        raise ConfigError(
            f"policy '{policy}' has nothing to sweep: no share and no cost changes what it keeps",
            where="--policies",
            remedy="Give --policies that learn, and train this one with rss-rl train",
        )
    if what == "cost" and given_a_share:
        raise ConfigError(f"policy '{policy}' learns from no cost", remedy="Give --shares")
    if component.can("budget"):
        row["settings"]["reward.target_share"] = None
        # The share replaces a fixed number of tokens.
        row["settings"]["policy.options"] = {
            name: given for name, given in options.items() if name != "tokens"
        } | {"share": value}
    elif component.can("random"):
        # Either role keeps a token, so that each has probability 1 - sqrt(1 - share). It is scored
        # by sampling: the threshold would keep all tokens or none.
        row["mode"] = "sampled"
        row["settings"] |= {
            "policy.options": options | {"probability": 1 - (1 - value) ** 0.5},
            "reward.target_share": None,
            "phases": _without_policy(base, policy),
        } | ({} if base.learner.estimator is None else {"learner.estimator": None})
    elif what == "share":
        if not component.can("share"):
            raise ConfigError(
                f"policy '{policy}' does not support a target share",
                where="--shares",
                remedy="Give --costs too, which are for such policies, or leave out that policy",
            )
        row["settings"]["reward.target_share"] = value
    else:
        row["settings"] |= {"reward.target_share": None, "reward.sparsity_cost": value}
    return row


def _learns_through_gates(base: RunConfig, policy: str) -> bool:
    component = find_component("policy", policy)
    if component.can("budget") or not component.can("learns"):
        return False
    capabilities = component.all_capabilities()
    named = base.learner.estimator or EstimatorConfig(name=default_estimator(capabilities))
    return named.can("gates")


def _without_policy(base: RunConfig, policy: str) -> list[dict[str, Any]]:
    """The phases that train the classifier, for a policy that is not trained."""
    kept = [
        phase.model_copy(update={"policy": False, "alternate_every": None})
        for phase in base.phases
        if phase.supervised
    ]
    if not kept or kept[-1].selection != "sampled":
        raise ConfigError(
            f"no phase trains the classifier on what '{policy}' draws",
            remedy="Leave out that policy, or add a phase with supervised: true",
        )
    return [phase.model_dump(mode="json") for phase in kept]


def _all_tokens(base: RunConfig) -> dict[str, Any] | None:
    """The all-tokens row, with the same number of updates; None if that is not known."""
    if base.updates is None:
        return None
    phase = {"name": "all", "supervised": True, "selection": "all"}
    return {
        "name": _ALL_TOKENS,
        "label": "all tokens",
        "settings": {
            "reward.target_share": None,
            "phases": [phase | {"steps": base.updates}],
        },
    }


def write_frontier(plan: Plan, show: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write the frontier of the finished runs; returns the files.

    Args:
        show: called with the Markdown first, so that it is shown even if writing fails.

    Raises:
        CheckpointError: a report is damaged, or a write fails.
    """
    results = collect_results(plan, {})
    metrics = [name for name in plan.table.metrics if any(name in r.metrics for r in results)]
    costs = [_lambda(plan, result) for result in results]
    markdown = _markdown(plan, results, metrics, costs)
    show(markdown)
    contents: dict[str, str | bytes] = {
        "frontier.md": markdown,
        "frontier.csv": _csv(results, metrics, costs),
    }
    if metrics:
        contents["frontier.png"] = _draw(plan, results, metrics[0])
    write_hparams(plan)
    return output.write_files(plan.folder, contents, "frontier")


def _lambda(plan: Plan, result: RowResult) -> float | None:
    """The final lambda under a target share, mean over the finished runs."""
    last = []
    for run in plan.runs_of(result.row, result.dataset):
        if state_of(run) == "finished":
            found = read_metrics(run.path)
            values = found.filter(pc.equal(found["tag"], "reward/lambda"))["value"].to_pylist()
            last += values[-1:]
    return fmean(last) if last else None


def _markdown(
    plan: Plan,
    results: Sequence[RowResult],
    metrics: Sequence[str],
    costs: Sequence[float | None],
) -> str:
    header = ["policy", "asked for", "kept %", *(heading(name) for name in metrics), "λ", "runs"]
    body = []
    for result, cost in zip(results, costs, strict=True):
        asked = result.row.label.rpartition(", ")[2] if _is_point(result) else output.NONE
        cells = [setting_of(result.row)[0], asked, output.format_spread(result.kept, 100)]
        for name in metrics:
            cells.append(output.format_spread(result.metrics.get(name), percent_scale(name)))
        cells.append(output.NONE if cost is None else f"{cost:.4g}")
        body.append([*cells, f"{result.runs} of {result.planned}"])
    note = (
        "Mean (sample standard deviation) over the seeds, on test, from the checkpoint that was "
        "best on dev; with a target share, the best within a point of it. λ: its final value."
    )
    return f"# {plan.table.title}\n\n{output.markdown_table(header, body)}\n\n{note}\n"


def _is_point(result: RowResult) -> bool:
    return result.row.name != _ALL_TOKENS


def _csv(
    results: Sequence[RowResult], metrics: Sequence[str], costs: Sequence[float | None]
) -> str:
    records = []
    for result, cost in zip(results, costs, strict=True):
        policy, asked = setting_of(result.row)
        record: dict[str, Any] = {"policy": policy, "row": result.row.name, "asked": asked}
        record |= {"lambda": cost, "runs": result.runs, "planned": result.planned}
        spreads = {"kept": result.kept} | {name: result.metrics.get(name) for name in metrics}
        for name, found in spreads.items():
            record[name], record[f"{name}_sd"] = found or (None, None)
        records.append(record)
    return output.csv_text(records)


def _draw(plan: Plan, results: Sequence[RowResult], metric: str) -> bytes:
    """A PNG of the metric against the share kept, with a line for each policy."""
    figure, (axes,) = output.panels(1, 1, (6.4, 4.4))
    axes.set_title(plan.table.title, fontsize=11)
    axes.set_xlabel("tokens kept, % of test")
    axes.set_ylabel(heading(metric))
    scale = percent_scale(metric)
    lines: dict[str, list[tuple[Spread, Spread]]] = {}
    for result in results:
        value = result.metrics.get(metric)
        if value is not None and not _is_point(result):
            axes.axhline(scale * value.mean, color="0.4", linestyle="--", label="all tokens")
        elif value is not None and result.kept is not None:
            lines.setdefault(setting_of(result.row)[0], []).append((result.kept, value))
    for number, (policy, points) in enumerate(lines.items()):
        kept, values = zip(*sorted(points, key=lambda point: point[0].mean), strict=True)
        axes.errorbar(
            [100 * share.mean for share in kept],
            [scale * value.mean for value in values],
            xerr=output.whiskers([share.deviation for share in kept], 100),
            yerr=output.whiskers([value.deviation for value in values], scale),
            fmt="o-",
            markersize=5,
            capsize=2.5,
            color=output.COLOURS[number % len(output.COLOURS)],
            label=policy,
        )
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=9)
    return output.png(figure)
