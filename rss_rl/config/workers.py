"""The sections of a configuration about learners and samplers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from rss_rl.components import Kind
from rss_rl.config.choice import Choice, Section

MOST_THREADS = 1024
"""More than any machine has cores; starting several thousand fails."""
_Decay = Annotated[float, Field(ge=0, lt=1)]


Precision = Literal["float32", "auto"]


class OptimizerConfig(Section):
    """One optimizer over one group of parameters."""

    name: Literal["adam", "adadelta", "sgd"] = "adam"
    learning_rate: float = Field(default=1e-3, gt=0)
    decay_updates: int | None = Field(default=None, ge=1)
    """Update at which the learning rate, decaying linearly, reaches zero; null: constant."""
    embedding_rate: float = Field(default=1.0, ge=0)
    """Learning rate of word vectors as a multiple of learning_rate; 0 freezes them."""
    rho: float = Field(default=0.95, gt=0, lt=1)
    """Adadelta's decay."""
    betas: tuple[_Decay, _Decay] = Field(default=(0.9, 0.999), strict=False)
    """Adam's decays."""
    eps: float = Field(default=1e-8, gt=0)
    l2: float = Field(default=0.0, ge=0)
    """gamma of gamma |theta|^2: weights only, not biases or embeddings."""
    clip_norm: float | None = Field(default=5.0, gt=0)
    """Largest gradient norm; null never clips."""


class EstimatorConfig(Choice):
    """The estimator of the policy's gradient."""

    kind: ClassVar[Kind] = "estimator"


class LearnerConfig(Section):
    """Both learners."""

    supervised: OptimizerConfig = OptimizerConfig()
    policy: OptimizerConfig = OptimizerConfig()
    estimator: EstimatorConfig | None = None
    """Of the policy's gradient: from the rewards of sampled selections, or through the gates. null:
    the default for the policy.
    """
    entropy_cost: float = Field(default=0.0, ge=0)
    """Weight of the mean bit entropy in the policy's objective."""
    weight_average: float | None = Field(default=None, gt=0, lt=1)
    """Decay of a running average of the classifier's weights; the average is then published,
    evaluated and saved. null: none.
    """
    distillation: float = Field(default=0.0, ge=0, le=1)
    """Weight d of a second target where the classifier reads a selection: what it predicted from
    all tokens before it first read one. Its loss is then (1 - d) times that of the label, plus d
    times the cross-entropy with that prediction. 0: the label alone.
    """
    device: str = "cpu"
    """Device of the learner, and of the sampler in its process if sampler.backend is local: cpu,
    cuda, cuda:1, ...
    """
    precision: Precision = "float32"
    """auto: matrix products in bfloat16 on devices that have it, so results may differ between
    machines; parameters stay float32.
    """
    threads: int = Field(default=1, ge=1, le=MOST_THREADS)
    """CPU threads of each learner."""
    actors: int = Field(default=0, ge=0)
    """Learners as Ray actors that share each batch, each on its own device. 0: the driver learns.
    """
    gpus: float = Field(default=0.0, ge=0)
    """GPUs that each learner actor requests."""
    timeout_s: float = Field(default=300.0, gt=0)
    """An update or evaluation that takes learner actors longer counts as hung."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """All learner actors must have started by then."""
    max_restarts: int = Field(default=3, ge=0)
    """Restarts of lost learner actors from the same checkpoint."""

    @model_validator(mode="after")
    def _devices_fit(self) -> LearnerConfig:
        on_gpu = self.device.startswith("cuda")
        if self.actors and on_gpu and self.gpus == 0:
            raise ValueError(
                f"learner.device={self.device} on actors needs learner.gpus, else all of them"
                " share one GPU: set learner.gpus=1"
            )
        if self.gpus and not (self.actors and on_gpu):
            raise ValueError(
                "learner.gpus needs learner.actors and learner.device=cuda; it would lie idle"
            )
        if self.gpus != int(self.gpus) and (self.gpus > 1 or self.actors > 1):
            raise ValueError(
                f"learner.gpus={self.gpus}: Ray divides no more than one GPU, and NCCL refuses two"
                " learners on one: set learner.gpus=1"
            )
        return self


class SamplerConfig(Section):
    """Samplers, and the selections that they sample."""

    backend: Literal["local", "ray"] = "local"
    """local: in this process, without Ray."""
    actors: int = Field(default=1, ge=1)
    """Ray sampler actors wanted; those for which the cluster has room start, others join later.
    local always has one.
    """
    selections: int = Field(default=4, ge=1)
    """K, selections drawn for each example."""
    shards: int = Field(default=2, ge=1)
    """Shards that the batch of an update is split into. A sampler scores all selections of one at
    once: more shards take less memory.
    """
    threads: int = Field(default=1, ge=1, le=MOST_THREADS)
    """CPU threads of each sampler."""
    precision: Precision = "float32"
    """Of matrix products, as `learner.precision`; with auto, of each sampler's own device."""
    gpus: float = Field(default=0.0, ge=0, le=1)
    """GPUs that each Ray sampler requests and computes on: with 0.25 four samplers share one. 0:
    samplers compute on CPUs.
    """
    max_policy_lag: int = Field(default=0, ge=0)
    """Largest policy lag of a rollout that is learnt from. 0: synchronous, an update waits for
    rollouts of its own version, and runs are bit-identical.
    """
    timeout_s: float = Field(default=120.0, gt=0)
    """A shard that takes longer counts as a hung sampler."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """The first sampler must have started by then."""
    resources: dict[str, float] = Field(default={})
    """Custom Ray resources that each sampler takes, such as {spot: 1}."""
    max_restarts: int = Field(default=3, ge=0)
    """Deaths or hangs of a sampler that are tolerated within 100 of its shards."""

    @model_validator(mode="after")
    def _makes_sense(self) -> SamplerConfig:
        for name, amount in self.resources.items():
            if amount <= 0 or name in ("CPU", "GPU", "memory", "object_store_memory"):
                raise ValueError(
                    f"resources: {name}={amount:g} is not a custom resource of more than 0; CPUs"
                    " come from sampler.threads, GPUs from sampler.gpus"
                )
        if self.gpus and self.backend != "ray":
            raise ValueError(
                f"sampler.gpus={self.gpus:g} needs Ray samplers: set sampler.backend=ray"
            )
        return self
