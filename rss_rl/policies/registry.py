"""Selection policies by name."""

from __future__ import annotations

__all__ = ["PolicyModule", "build_policy"]

from rss_rl.config import PolicyConfig
from rss_rl.errors import ConfigError, nearest
from rss_rl.policies.fixed import BernoulliPolicy, SelectAllPolicy
from rss_rl.policies.iterative import IterativePolicy
from rss_rl.policies.rss import RSSPolicy

PolicyModule = RSSPolicy | IterativePolicy | SelectAllPolicy | BernoulliPolicy
"""A `StochasticPolicy` that is a torch module."""

_KNOWN = ["rss", "iterative", "select-all", "bernoulli"]


def build_policy(config: PolicyConfig, inputs: int, activation: str) -> PolicyModule:
    """The policy named in the configuration, reading embeddings of size `inputs`.

    Raises:
        ConfigError: on an unknown name.
    """
    if config.name == "rss":
        return RSSPolicy(
            inputs,
            config.hidden,
            activation,
            config.initial_probability,
            shared=config.shared,
            context=config.context,
        )
    if config.name == "iterative":
        return IterativePolicy(
            inputs,
            config.hidden,
            activation,
            config.initial_probability,
            cell=config.cell,
            shared=config.shared,
        )
    if config.name == "select-all":
        return SelectAllPolicy()
    if config.name == "bernoulli":
        return BernoulliPolicy(config.initial_probability)
    raise ConfigError(
        f"unknown policy '{config.name}'{nearest(config.name, _KNOWN)}",
        where="policy.name",
        remedy=f"Known: {', '.join(_KNOWN)}",
    )
