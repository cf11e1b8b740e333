"""The policy that a configuration names, as the runtime uses it."""

from __future__ import annotations

from collections.abc import Sequence

from rss_rl.config import PolicyConfig
from rss_rl.policies.adapters import PolicyModule, adapt
from rss_rl.policies.protocol import PolicySetup


def build_policy(
    config: PolicyConfig, inputs: int, activation: str, words: Sequence[str] = ()
) -> PolicyModule:
    """The policy named in the configuration, reading embeddings of size `inputs`.

    Args:
        words: word of each token id, for policies that are told where sentences end; empty where
            unknown.

    Raises:
        ConfigError: the component builds no policy, or one that does not match its declaration.
    """
    component, options = config.component, config.component.parse(config.options)
    policy = component.build(PolicySetup(inputs, activation, words), options)
    return adapt(policy, component.all_capabilities(options), where=f"policy '{config.name}'")
