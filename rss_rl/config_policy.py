"""The sections of a configuration about what is selected, and what a selection earns."""

from __future__ import annotations

__all__ = ["PolicyConfig", "Reads", "RewardConfig"]

from typing import Any, Literal

from pydantic import Field, model_validator

from rss_rl.config_workers import Section

Reads = Literal["sentence", "example"]
"""What a policy is shown when it selects words of a sentence."""

_WITHOUT_CONTEXT = ("iterative", "select-all", "bernoulli", "stop-words")


class PolicyConfig(Section):
    """The selection policy."""

    name: str = Field(
        default="rss",
        description="rss, iterative, gumbel, hardkuma, top-k, stop-words, select-all or bernoulli;"
        " one that an installed package offers, or package.module:Class.",
    )
    options: dict[str, Any] = Field(
        default={}, description="Handed to the policy's class; those of built-in ones: README."
    )
    hidden: int = Field(default=300, ge=1)
    shared: bool = Field(
        default=False, description="One module for both roles ('w/o dependency restricted')."
    )
    reads: Reads = Field(
        default="sentence",
        description="sentence: a policy selects its words without knowing the other sentence of the"
        " example. example: beside each word also the other's mean vector, the product with it, and"
        " how near the nearest word there is: the passage is read knowing the question.",
    )
    context: Literal["none", "lstm", "gru"] = Field(
        default="none",
        description="Not of iterative: a bidirectional recurrent layer below the policy.",
    )
    cell: Literal["rnn", "gru"] = Field(
        default="rnn", description="iterative only: what remembers the bits drawn so far."
    )
    initial_probability: float = Field(
        default=0.5, gt=0, lt=1, description="Of selecting a token, at the start."
    )

    @model_validator(mode="after")
    def _has_context(self) -> PolicyConfig:
        if self.context != "none" and self.name in _WITHOUT_CONTEXT:
            raise ValueError(f"policy '{self.name}' has no context layer: set context to none")
        return self


class RewardConfig(Section):
    """Reward = log-likelihood - sparsity_cost * penalty, for each sentence."""

    sparsity_cost: float = Field(
        default=0.02, ge=0, description="Lambda of the paper; with target_share where it begins."
    )
    penalty: Literal["sum", "product"] = Field(
        default="sum",
        description="sum: (heads + dependents) / n, the paper; product: heads / n * dependents / n,"
        " the released program.",
    )
    coherence_cost: float = Field(
        default=0.0,
        ge=0,
        description="Nats for n changes between neighbours in a sentence of n tokens, of both"
        " roles: the fused lasso of Lei et al. (2016).",
    )
    target_share: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Share of the tokens to keep (head or dependent), as many heads as dependents:"
        " a lambda for each role follows, of either sign, so that no less is kept either.",
    )

    @property
    def fixed_cost(self) -> float:
        """Lambda of the reward; 0 where a target share steers it, see `learners.share_control`."""
        return self.sparsity_cost if self.target_share is None else 0.0

    @model_validator(mode="after")
    def _charges_each_role(self) -> RewardConfig:
        if self.target_share is not None and self.penalty != "sum":
            raise ValueError("target_share charges each role by itself: set penalty to sum")
        return self
