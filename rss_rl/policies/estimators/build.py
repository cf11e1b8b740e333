"""The estimator that a configuration names, checked."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from rss_rl.config import EstimatorConfig
from rss_rl.errors import ConfigError
from rss_rl.policies.estimators.protocol import (
    BitEstimator,
    Estimator,
    EstimatorSetup,
    GateEstimator,
    LogProbEstimator,
)
from rss_rl.policies.protocol import FactorisedPolicy, missing_attributes

_KINDS = {"log_probs": LogProbEstimator, "logits": BitEstimator, "gates": GateEstimator}


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
    if isinstance(built, BitEstimator) and built.needs_flips != config.can("flips"):
        raise ConfigError(
            f"needs_flips is {built.needs_flips}, and the capability flips says otherwise",
            where=where,
            remedy="Declare flips if it needs the rewards of flipped bits",
        )
    return cast(Estimator, built)


def drawn_roles(policy: object, embedded: Tensor, valid: Tensor) -> int:
    """R, the bits that a factorised policy draws for a token.

    Raises:
        ConfigError: its bits are not independent, or not known to be.
    """
    if not isinstance(policy, FactorisedPolicy):
        raise ConfigError(
            f"{type(policy).__name__} has no logits of independent bits",
            where="learner.estimator",
            remedy="Use an estimator that works on log-probs, or a policy with `logits`",
        )
    return policy.logits(embedded[:0], valid[:0]).shape[1]
