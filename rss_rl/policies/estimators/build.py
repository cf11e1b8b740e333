"""The estimator that a configuration names, checked."""

from __future__ import annotations

from typing import Any, cast

from rss_rl.config import EstimatorConfig
from rss_rl.errors import ConfigError
from rss_rl.policies.estimators.protocol import (
    Estimator,
    EstimatorSetup,
    GateEstimator,
    LogProbEstimator,
)
from rss_rl.policies.protocol import missing_attributes

_KINDS = {"log_probs": LogProbEstimator, "gates": GateEstimator}


def build_estimator(config: EstimatorConfig, selections: int) -> Estimator:
    """The estimator named in the configuration, for K `selections` of each example.

    Raises:
        ConfigError: what the component builds is not what it declares.
    """
    declared = [kind for capability, kind in _KINDS.items() if config.can(capability)]
    where = f"estimator '{config.name}'"
    if len(declared) != 1:
        raise ConfigError(
            f"it declares {len(declared)} of the capabilities {', '.join(_KINDS)}",
            where=where,
            remedy="Declare what it works on: exactly one of them",
        )
    built: Any = config.build(EstimatorSetup(selections))
    (kind,) = declared
    if not isinstance(built, kind):
        lacking = ", ".join(f"`{name}`" for name in missing_attributes(built, kind))
        why = f": it has no {lacking}" if lacking else ""
        raise ConfigError(
            f"{type(built).__name__} is not a {kind.__name__}{why}",
            where=where,
            remedy="See rss_rl.policies.estimators.protocol",
        )
    return cast(Estimator, built)
