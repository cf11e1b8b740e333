"""Selection policies by name."""

from __future__ import annotations

__all__ = ["GROUP", "PolicyModule", "build_policy"]

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rss_rl.config import PolicyConfig
from rss_rl.ops.attention import Backend
from rss_rl.policies.adapters import PolicyModule, adapt
from rss_rl.policies.fixed import BernoulliPolicy, SelectAllPolicy
from rss_rl.policies.hardkuma import HardKumaPolicy
from rss_rl.policies.iterative import IterativePolicy
from rss_rl.policies.plugins import call_with_options, find_class, positive
from rss_rl.policies.protocol import PolicySetup
from rss_rl.policies.rss import RSSPolicy
from rss_rl.policies.stop_words import StopWordsPolicy
from rss_rl.policies.top_k import TopKPolicy

GROUP = "rss_rl.policies"
"""Entry-point group in which an installed package names its policies."""


def _rss(setup: PolicySetup, temperature: float = 1.0) -> RSSPolicy:
    config = setup.config
    return RSSPolicy(
        setup.inputs,
        config.hidden,
        setup.activation,
        config.initial_probability,
        shared=config.shared,
        context=config.context,
        temperature=positive("temperature", temperature),
        backend=setup.backend,
    )


def _iterative(setup: PolicySetup) -> IterativePolicy:
    config = setup.config
    return IterativePolicy(
        setup.inputs,
        config.hidden,
        setup.activation,
        config.initial_probability,
        cell=config.cell,
        shared=config.shared,
    )


def _select_all(setup: PolicySetup) -> SelectAllPolicy:
    return SelectAllPolicy()


def _bernoulli(setup: PolicySetup) -> BernoulliPolicy:
    return BernoulliPolicy(setup.config.initial_probability)


_BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "rss": _rss,
    "gumbel": _rss,  # the same distribution; by default it learns through its gates
    "iterative": _iterative,
    "hardkuma": HardKumaPolicy,
    "top-k": TopKPolicy,
    "stop-words": StopWordsPolicy,
    "select-all": _select_all,
    "bernoulli": _bernoulli,
}


def build_policy(
    config: PolicyConfig,
    inputs: int,
    activation: str,
    words: Sequence[str] = (),
    backend: Backend = "eager",
) -> PolicyModule:
    """The policy named in the configuration, reading embeddings of size `inputs`.

    Args:
        words: word of each token id, for policies that read words; empty where unknown.
        backend: see `PolicySetup`.

    Raises:
        ConfigError: on an unknown name, options that do not fit, or a class that is no policy.
    """
    make = find_class(config.name, known=_BUILT_IN, group=GROUP, where="policy.name")
    setup = PolicySetup(inputs, activation, config, words, backend)
    return adapt(call_with_options(make, (setup,), config.options, where="policy.options"))
