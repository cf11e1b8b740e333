"""The policy that a configuration names, how much it reads, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import nn

from rss_rl.config import PolicyConfig, Reads
from rss_rl.errors import ConfigError
from rss_rl.ops.matching import MATCH_SIZE
from rss_rl.policies.distributions import SelectionDistribution
from rss_rl.policies.policy import Policy, PolicySetup


def input_size(reads: Reads, embedding: int, states: int | None = None) -> int:
    """F, the features that a policy reads of each token.

    Args:
        embedding: size of a word vector.
        states: size of a pretrained encoder's states; None if the policy does not read them.
    """
    if states is not None:
        return embedding + states
    return embedding if reads == "sentence" else 3 * embedding + MATCH_SIZE


def check_reads(reads: Reads, sentences: int) -> None:
    """Refuse a policy that reads whole examples if these have one sentence.

    Raises:
        ConfigError: the task has one sentence per example.
    """
    if reads == "example" and sentences == 1:
        raise ConfigError(
            "the task has one sentence per example, so there is no other to read",
            where="policy.reads",
            remedy="Set policy.reads=sentence",
        )


def build_policy(
    config: PolicyConfig,
    features: int,
    activation: str,
    words: Sequence[str] = (),
) -> Policy:
    """The policy named in the configuration, which reads so many features of a token.

    Args:
        words: word of each token id, for policies that are told where sentences end; empty where
            unknown.

    Raises:
        ConfigError: the component builds no torch module.
    """
    policy = config.build(PolicySetup(features, activation, words))
    return check_module(policy, f"policy '{config.name}'")


def check_module(policy: object, where: str) -> Policy:
    """The policy.

    Raises:
        ConfigError: it is not a torch module.
    """
    if not isinstance(policy, nn.Module):
        raise ConfigError(
            f"{type(policy).__name__} is not a torch module",
            where=where,
            remedy="Derive it from torch.nn.Module, even if it has no parameters",
        )
    return cast(Policy, policy)


def check_distribution(distribution: object, declared: frozenset[str] | None, where: str) -> None:
    """Refuse what a policy returns if it is no distribution, or not as its component declares.

    Args:
        declared: capabilities of its component; None: not known.

    Raises:
        ConfigError: naming what does not fit.
    """
    if not isinstance(distribution, SelectionDistribution):
        raise ConfigError(
            f"it returns {type(distribution).__name__}, not a SelectionDistribution",
            where=where,
            remedy="Return one of rss_rl.policies.distributions, such as IndependentBits",
        )
    for capability, has in (
        ("log_probs", distribution.has_log_probs),
        ("gates", distribution.has_rsample),
    ):
        if declared is not None and has != (capability in declared):
            raise ConfigError(
                f"its distribution {'has' if has else 'lacks'} what the capability {capability} is"
                f" for, and its component {'does not declare' if has else 'declares'} that",
                where=where,
                remedy="Declare log_probs for `evaluate`, and gates for `rsample`",
            )
