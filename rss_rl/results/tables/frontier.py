"""A sparsity-accuracy frontier as a table: every policy with every target share or lambda.

The runs are those of any table, so they are planned, made, gone on with and read as such.
"""

from __future__ import annotations

__all__ = ["ALL_TOKENS_ROW", "Sweep", "frontier_table", "setting_of"]

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rss_rl.components import Component, default_estimator, find_component
from rss_rl.config import EstimatorConfig, RunConfig, parse_section, parse_value
from rss_rl.errors import ConfigError
from rss_rl.metrics.measures import task_measures
from rss_rl.results.tables.spec import Row, Table

ALL_TOKENS_ROW = "all-tokens"


@dataclass(frozen=True)
class Sweep:
    """What a frontier goes through.

    policies  names, as a configuration has them
    shares    target shares, each in (0, 1)
    costs     values of lambda; beside shares, for those policies alone that no share steers
    seeds     how many for each point
    """

    policies: tuple[str, ...]
    shares: tuple[float, ...] = ()
    costs: tuple[float, ...] = ()
    seeds: int = 3

    def __post_init__(self) -> None:
        if not self.shares and not self.costs:
            raise ConfigError(
                "a frontier goes through target shares or through values of lambda",
                remedy="Give --shares, --costs or both",
            )
        if not all(0 < share < 1 for share in self.shares):
            raise ConfigError("a target share lies between 0 and 1", where="--shares")
        if any(cost < 0 for cost in self.costs):
            raise ConfigError("a sparsity cost is at least 0", where="--costs")


def frontier_table(config: str, overrides: Sequence[str], base: RunConfig, sweep: Sweep) -> Table:
    """The table of a sweep over what the configuration `config` with `overrides` says.

    Args:
        base: the same, read.

    Raises:
        ConfigError: a sweep that the configuration does not fit.
    """
    settings = {key: parse_value(text, where=key) for key, text in map(_pair, overrides)}
    rows = [
        _point(base, policy, *setting)
        for policy in sweep.policies
        for setting in _all(base, sweep, policy)
    ]
    if sweep.shares and sweep.costs and not any("-cost-" in row["name"] for row in rows):
        raise ConfigError(
            "shares steer all of these policies: no cost would be tried",
            where="--costs",
            remedy="Leave --costs away, or --shares",
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
                "name": _name(Path(base.data).name),
                "prepared": base.data,
                "bases": {"own": {"config": config, "settings": settings}},
            }
        ],
        "rows": rows,
    }
    return parse_section(Table, tree, where="frontier")


def setting_of(row: Row) -> tuple[str, float | None]:
    """Policy of a row, and the target share or sparsity cost that it was given.

    Of the row that reads every token: `all tokens`, and None.
    """
    if row.name == ALL_TOKENS_ROW:
        return "all tokens", None
    given = row.settings.get("reward.target_share") or row.settings.get("reward.sparsity_cost")
    name, options = row.settings["policy.name"], row.settings["policy.options"]
    policy = _policy(name)
    if policy.can("budget"):
        given = options["share"]
    if policy.can("random"):
        given = 1 - (1 - options["probability"]) ** 2
    return name, given


def _policy(name: str) -> Component:
    return find_component("policy", name)


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value


def _name(text: str) -> str:
    """Of a directory."""
    return re.sub(r"[^a-z0-9.-]", "-", text.lower()).strip("-.")[:60] or "data"


def _all(base: RunConfig, sweep: Sweep, policy: str) -> list[tuple[str, float]]:
    if sweep.shares and (not sweep.costs or not _learns_through_gates(base, policy)):
        return [("share", value) for value in sweep.shares]
    return [("cost", value) for value in sweep.costs]


def _point(base: RunConfig, policy: str, what: str, value: float) -> dict[str, Any]:
    component, options = _policy(policy), _options(base, policy)
    row: dict[str, Any] = {
        "name": f"{_name(policy)}-{what}-{value:g}",
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
        # Where a number of tokens was given instead of a share, it gives way.
        row["settings"]["policy.options"] = {
            name: given for name, given in options.items() if name != "tokens"
        } | {"share": value}
    elif component.can("random"):
        # One chance for both roles of which either keeps a token; above one half the threshold
        # would keep them all, so it is scored by what it draws.
        row["mode"] = "sampled"
        row["settings"] |= {
            "policy.options": options | {"probability": 1 - (1 - value) ** 0.5},
            "reward.target_share": None,
            "phases": _without_policy(base, policy),
        } | ({} if base.learner.estimator is None else {"learner.estimator": None})
    elif what == "share":
        _check_steered(policy)
        row["settings"]["reward.target_share"] = value
    else:
        row["settings"] |= {"reward.target_share": None, "reward.sparsity_cost": value}
    return row


def _options(base: RunConfig, policy: str) -> dict[str, Any]:
    """Those of the configuration's own policy that this one has as well."""
    known = _policy(policy).options.model_fields
    return {name: value for name, value in base.policy.options.items() if name in known}


def _learns_through_gates(base: RunConfig, policy: str) -> bool:
    component = _policy(policy)
    if component.can("budget") or not component.can("learns"):
        return False
    capabilities = component.all_capabilities()
    named = base.learner.estimator or EstimatorConfig(name=default_estimator(capabilities))
    return named.can("gates")


def _check_steered(policy: str) -> None:
    if not _policy(policy).can("share"):
        raise ConfigError(
            f"no target share steers policy '{policy}', which keeps by a rule of its own",
            where="--shares",
            remedy="Give --costs too, which are for such policies, or leave that policy away",
        )


def _without_policy(base: RunConfig, policy: str) -> list[dict[str, Any]]:
    """The phases in which the classifier learns, for a policy that does not."""
    kept = [
        phase.model_copy(update={"policy": False, "alternate_every": None})
        for phase in base.phases
        if phase.supervised
    ]
    if not kept or kept[-1].selection != "sampled":
        raise ConfigError(
            f"no phase trains the classifier on what '{policy}' draws",
            remedy="Leave that policy away, or add a phase with supervised: true",
        )
    return [phase.model_dump(mode="json") for phase in kept]


def _all_tokens(base: RunConfig) -> dict[str, Any] | None:
    """Every token, for as many updates; none where the updates of a phase are not known."""
    steps = [phase.steps for phase in base.phases]
    if None in steps:
        return None
    phase = {"name": "all", "supervised": True, "selection": "all"}
    return {
        "name": ALL_TOKENS_ROW,
        "label": "all tokens",
        "settings": {
            "reward.target_share": None,
            "phases": [phase | {"steps": sum(step for step in steps if step)}],
        },
    }
