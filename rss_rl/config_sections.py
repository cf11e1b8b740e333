"""The sections of a run's configuration: frozen, strict, each field with its default."""

from __future__ import annotations

__all__ = [
    "CheckpointConfig",
    "EvaluationConfig",
    "LearnerConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PhaseConfig",
    "PolicyConfig",
    "RewardConfig",
    "RunConfig",
    "SamplerConfig",
]

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Decay = Annotated[float, Field(ge=0, lt=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelConfig(_Section):
    """The classifier (reward model): encoder and task head."""

    encoder: Literal["resan", "source2token", "mean"] = "resan"
    keep_unselected: bool = Field(
        default=False,
        description="ReSAN only. true: the paper's ReSAN, an unselected token still reaches the"
        " sentence vector; false: the faithful form, only selected heads stay.",
    )
    unselected_context: Literal["real", "dependents"] = Field(
        default="real", description="Tokens that the context of an unselected head averages."
    )
    hidden: int = Field(
        default=300, ge=1, description="Hidden size D; sentence vectors have 2 D features."
    )
    activation: Literal["relu", "elu"] = "elu"
    dropout: float = Field(
        default=0.25, ge=0, lt=1, description="Drop rate on the input of each Dense layer."
    )
    tanh_scale: float = Field(
        default=5.0,
        gt=0,
        le=20,  # attention weighs by exp(logit - c), which float32 must not round to 0
        description="c of the attention logit c tanh(s / c).",
    )
    highway: bool = Field(
        default=True, description="Highway layer in the head of pairs with class labels."
    )
    score_loss: Literal["divergence", "squared"] = Field(
        default="divergence",
        description="Loss of score tasks: KL divergence to bins, or half squared error.",
    )
    score_bins: int | None = Field(
        default=None, ge=2, description="Bins of a score task; default one for each whole score."
    )


class PolicyConfig(_Section):
    """The selection policy."""

    name: str = Field(default="rss", description="rss, select-all or bernoulli.")
    hidden: int = Field(default=300, ge=1)
    shared: bool = Field(
        default=False, description="One RSS module for both roles ('w/o dependency restricted')."
    )
    initial_probability: float = Field(
        default=0.5, gt=0, lt=1, description="Of selecting a token, at the start."
    )


class RewardConfig(_Section):
    """Reward = log-likelihood - sparsity_cost * penalty, for each sentence."""

    sparsity_cost: float = Field(default=0.02, ge=0, description="Lambda of the paper.")
    penalty: Literal["sum", "product"] = Field(
        default="sum",
        description="sum: (heads + dependents) / n, the paper; product: heads / n * dependents / n,"
        " the released program.",
    )


class OptimizerConfig(_Section):
    """One optimizer over one group of parameters."""

    name: Literal["adam", "adadelta"] = "adam"
    learning_rate: float = Field(default=1e-3, gt=0)
    decay_updates: int | None = Field(
        default=None,
        ge=1,
        description="Update of the run at which the learning rate has fallen, linearly, to zero;"
        " null: constant.",
    )
    embedding_rate: float = Field(
        default=1.0,
        ge=0,
        description="Learning rate of word vectors, as a multiple of learning_rate; 0 keeps them.",
    )
    rho: float = Field(default=0.95, gt=0, lt=1, description="Adadelta's decay.")
    betas: tuple[_Decay, _Decay] = Field(
        default=(0.9, 0.999), strict=False, description="Adam's decays."
    )
    eps: float = Field(default=1e-8, gt=0)
    l2: float = Field(
        default=0.0,
        ge=0,
        description="gamma of gamma |theta|^2: weights only, not biases or embeddings.",
    )
    clip_norm: float | None = Field(
        default=5.0, gt=0, description="Largest gradient norm; null never clips."
    )


class LearnerConfig(_Section):
    """Both learners."""

    supervised: OptimizerConfig = OptimizerConfig()
    policy: OptimizerConfig = OptimizerConfig()
    baseline: Literal["none", "moving-average", "self-critical", "leave-one-out"] = "leave-one-out"
    baseline_momentum: float = Field(default=0.95, ge=0, lt=1, description="Of the moving average.")
    correction: Literal["none", "truncated-sum", "truncated-token", "clipped-token"] = Field(
        default="truncated-sum",
        description="Importance ratios of selections that an older policy drew: truncated, of the"
        " whole selection (V-trace) or of each bit; clipped, of each bit (PPO). The default had the"
        " least error of the gradient at nearly every lag in tests/benchmarks/importance.py.",
    )
    ratio_max: float = Field(
        default=2.0, ge=1, description="Largest importance ratio of a truncated correction."
    )
    ratio_clip: float = Field(
        default=0.2, gt=0, lt=1, description="epsilon of the clipped correction."
    )
    entropy_cost: float = Field(
        default=0.0, ge=0, description="Weight of the mean bit entropy in the policy's objective."
    )
    weight_average: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Decay of a running average of the classifier's weights, which is then what is"
        " published, evaluated and saved as the classifier. null: none.",
    )
    device: str = Field(default="cpu", description="Device of the learner: cpu, cuda, cuda:1, ...")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="bfloat16: matrix products in autocast; parameters stay float32.",
    )
    threads: int = Field(default=1, ge=1, description="CPU threads of each learner.")
    actors: int = Field(
        default=0,
        ge=0,
        description="Learners as Ray actors that share each batch, each on a device of its own."
        " 0: the process that starts the run learns.",
    )
    gpus: float = Field(
        default=0.0, ge=0, description="GPUs that each learner actor asks the cluster for."
    )
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = Field(
        default="PACK", description="Of the learner actors' placement group on the nodes."
    )
    timeout_s: float = Field(
        default=300.0,
        gt=0,
        description="An update or evaluation that takes learner actors longer counts as hung.",
    )
    start_timeout_s: float = Field(
        default=120.0, gt=0, description="All learner actors must have started by then."
    )
    max_restarts: int = Field(
        default=3,
        ge=0,
        description="Times that lost learner actors are started again from the last checkpoint.",
    )

    @property
    def corrects_bits(self) -> bool:
        """The correction needs log-probs bit by bit; the others need sums, or nothing."""
        return self.correction in ("truncated-token", "clipped-token")


class SamplerConfig(_Section):
    """Who samples selections, and how many."""

    backend: Literal["local", "ray"] = Field(
        default="local", description="local: in this process, without Ray."
    )
    actors: int = Field(
        default=1,
        ge=1,
        description="Ray sampler actors wanted; as many as the cluster has room for work, others"
        " join when they can. local always has one.",
    )
    selections: int = Field(default=4, ge=1, description="K, selections drawn for each example.")
    shards: int = Field(
        default=2, ge=1, description="Pieces the examples of an update are cut into."
    )
    threads: int = Field(default=1, ge=1, description="CPU threads of each sampler.")
    precision: Literal["float32", "bfloat16"] = "float32"
    max_policy_lag: int = Field(
        default=0,
        ge=0,
        description="Versions a rollout may be behind when it is learnt from. 0: synchronous, an"
        " update waits for rollouts of its own version, and a run repeats to the bit.",
    )
    run_ahead: int | None = Field(
        default=None,
        ge=0,
        description="Updates that samplers may be ahead of the learner. null: as many as"
        " max_policy_lag admits. With more, rollouts too old are discarded and sampled again.",
    )
    in_flight: int = Field(
        default=2, ge=1, description="Shards handed to a sampler at once; a second one waits there."
    )
    publish_every: int = Field(
        default=1, ge=1, description="Updates between two snapshots; at most max_policy_lag + 1."
    )
    timeout_s: float = Field(
        default=120.0, gt=0, description="A shard that takes longer counts as a hung sampler."
    )
    start_timeout_s: float = Field(
        default=120.0, gt=0, description="The first sampler must have started by then."
    )
    resources: dict[str, float] = Field(
        default={}, description="Custom Ray resources that each sampler takes, such as {spot: 1}."
    )
    max_restarts: int = Field(
        default=3,
        ge=0,
        description="Deaths or hangs of one sampler tolerated within 100 of its shards.",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> SamplerConfig:
        if self.publish_every > self.max_policy_lag + 1:
            raise ValueError(
                f"publish_every={self.publish_every} makes every rollout older than"
                f" max_policy_lag={self.max_policy_lag} allows: raise the lag to at least"
                f" {self.publish_every - 1}"
            )
        return self


class PhaseConfig(_Section):
    """A stretch of training: who learns, and when it ends (whichever comes first)."""

    name: str = Field(min_length=1)
    supervised: bool = Field(default=False, description="The classifier learns.")
    policy: bool = Field(default=False, description="The policy learns.")
    selection: Literal["all", "sampled"] = Field(
        default="sampled",
        description="What the classifier is trained on: every token, or sampled selections.",
    )
    steps: int | None = Field(default=None, ge=1, description="Updates at most.")
    patience: int | None = Field(
        default=None,
        ge=1,
        description="Ends after this many evaluations without a better dev loss (sampled: reward).",
    )
    restore_best: bool = Field(
        default=False, description="Go on from the update that was best on dev."
    )
    alternate_every: int | None = Field(
        default=None,
        ge=1,
        description="Learners take turns of this many updates instead of sharing each one.",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> PhaseConfig:
        if not (self.supervised or self.policy):
            raise ValueError("nothing learns: set supervised or policy to true")
        if self.steps is None and self.patience is None:
            raise ValueError("the phase never ends: give steps, patience or both")
        if self.policy and self.selection == "all":
            raise ValueError(
                "the policy learns from sampled selections: selection must be 'sampled'"
            )
        if self.alternate_every and not (self.supervised and self.policy):
            raise ValueError("alternate_every needs both supervised and policy")
        return self


class EvaluationConfig(_Section):
    """When the dev split is scored, and how the best checkpoint is chosen."""

    every: int = Field(default=100, ge=1, description="Updates between evaluations on dev.")
    selections: int = Field(default=4, ge=1, description="K of the sampled evaluation.")
    batch_size: int = Field(default=128, ge=1)
    best_metric: Literal["auto", "accuracy", "pearson", "spearman", "mse", "loss", "reward"] = (
        Field(
            default="auto",
            description="Dev metric that picks the best checkpoint; auto: accuracy or pearson.",
        )
    )
    all_tokens: bool = Field(
        default=True,
        description="Also train the same model with every token selected, for as many steps.",
    )


class CheckpointConfig(_Section):
    """How often a run can be resumed from."""

    every: int = Field(
        default=200,
        ge=1,
        description="Updates between checkpoints; one is written at each evaluation too.",
    )
    keep_last: int = Field(default=2, ge=1)


class RunConfig(_Section):
    """Everything a run depends on."""

    data: str = Field(description="Directory or URI written by `rss-rl data prepare`.")
    seed: int = Field(default=0, ge=0)
    batch_size: int = Field(default=64, ge=1, description="Examples an update.")
    model: ModelConfig = ModelConfig()
    policy: PolicyConfig = PolicyConfig()
    reward: RewardConfig = RewardConfig()
    learner: LearnerConfig = LearnerConfig()
    sampler: SamplerConfig = SamplerConfig()
    phases: tuple[PhaseConfig, ...] = Field(min_length=1, strict=False)
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        learns = any(phase.policy for phase in self.phases)
        if learns and self.learner.baseline == "leave-one-out" and self.sampler.selections < 2:
            raise ValueError("learner.baseline=leave-one-out needs sampler.selections >= 2")
        if learns and self.policy.name in ("select-all", "bernoulli"):
            raise ValueError(
                f"policy '{self.policy.name}' has nothing to learn: no phase may set policy: true"
            )
        if self.learner.actors and self.sampler.backend != "ray":
            raise ValueError("learner.actors needs sampler.backend=ray")
        if self.sampler.shards > self.batch_size:
            raise ValueError("sampler.shards may not exceed batch_size")
        updates = sum(phase.steps or 0 for phase in self.phases)
        for name in ("supervised", "policy"):
            decay = getattr(self.learner, name).decay_updates
            if decay is not None and decay < updates:
                raise ValueError(
                    f"learner.{name}.decay_updates={decay} ends learning before the phases'"
                    f" {updates} updates do"
                )
        return self
