"""The sections of a run's configuration: frozen, strict, each field with its default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, model_validator

from rss_rl.components import DEFAULTS, Kind, default_policy_update
from rss_rl.config.choice import Choice, Section
from rss_rl.types import Window


class EncoderChoice(Choice):
    """A sentence encoder."""

    kind: ClassVar[Kind] = "encoder"


class ClassifierChoice(Choice):
    """A task model."""

    kind: ClassVar[Kind] = "classifier"


class ModelConfig(Section):
    """The classifier (reward model): encoder and task model."""

    encoder: EncoderChoice = Field(default_factory=lambda: EncoderChoice(name=DEFAULTS["encoder"]))
    """What makes a sentence vector of the selected tokens."""
    classifier: ClassifierChoice | None = None
    """The task model around the encoder; null: the built-in one for the labels."""
    hidden: int = Field(default=300, ge=1)
    """Hidden size D; vectors of sentences have 2 D features where an encoder has two directions or
    attention heads.
    """
    head_hidden: int | None = Field(default=None, ge=1)
    """Hidden size of the task head; default `hidden`."""
    activation: Literal["relu", "elu"] = "elu"
    dropout: float = Field(default=0.25, ge=0, lt=1)
    """Drop rate on the input of each Dense layer."""
    attention: Literal["auto", "eager", "compiled"] = "auto"
    """What computes feature-wise attention and what stands around it. compiled: kernels, in C++ on
    the CPU (linear maps, gates, pooling and RSS too) and Triton's on CUDA; auto: compiled where the
    machine that begins the run can.
    """


Reads = Literal["sentence", "example", "contextual"]
"""What a policy is shown when it selects words of a sentence."""


class LoggerChoice(Choice):
    """A logger."""

    kind: ClassVar[Kind] = "logger"


class PolicyConfig(Choice):
    """The selection policy."""

    kind: ClassVar[Kind] = "policy"

    name: str = DEFAULTS["policy"]
    """An installed policy, see `rss-rl components policies`, or package.module:OBJECT."""
    reads: Reads = "sentence"
    """sentence: a policy selects its words without knowing the other sentence of the example.
    example: beside each word also the other's mean vector, the product with it, and how near the
    nearest word there is: the passage is read knowing the question. contextual: beside its vectors
    each word as the encoder `pretrained` sees it in its text or sentence, from states that `rss-rl
    data encode` wrote; the classifier still gets the kept words alone.
    """
    pretrained: str | None = None
    """Folder of a transformer with its tokenizer, or its name on the Hugging Face hub, for
    reads=contextual.
    """
    layers: int | None = Field(default=None, ge=1)
    """Layers of `pretrained` that are read, from the first; null: all. States of middle layers say
    more of single words.
    """
    window: Window = "text"
    """What `pretrained` reads at once: text, up to its maximum length, or each sentence by itself,
    as an encoder knows them that was fine-tuned on sentences. One ends with '.', '!' or '?'.
    """
    from_run: str | None = None
    """Directory of a run with the same policy on the same data. The run begins with its best policy
    and the word vectors that it reads. The policy stays fixed in phases without policy: true, the
    word vectors with learner.supervised.embedding_rate=0.
    """

    @model_validator(mode="after")
    def _knows_what_it_reads(self) -> PolicyConfig:
        if (self.reads == "contextual") != (self.pretrained is not None):
            raise ValueError(
                "reads=contextual and pretrained are given together or not at all:"
                " set policy.reads=contextual and policy.pretrained=FOLDER"
            )
        if self.pretrained is None and (self.layers is not None or self.window != "text"):
            raise ValueError("layers and window are those of policy.pretrained, which is not set")
        return self


class RewardModelChoice(Choice):
    """What says how good a selection is."""

    kind: ClassVar[Kind] = "reward_model"
    name: str = DEFAULTS["reward_model"]
    """An installed component, see `rss-rl components reward_models`, or package.module:OBJECT."""


class RewardConfig(Section):
    """Reward = score of the model - sparsity_cost * penalty, for each sentence."""

    model: RewardModelChoice = Field(default_factory=RewardModelChoice)
    sparsity_cost: float = Field(default=0.02, ge=0)
    """Lambda of the paper; with target_share where it begins."""
    penalty: Literal["sum", "product"] = "sum"
    """sum: (heads + dependents) / n, the paper; product: heads / n * dependents / n, the released
    program.
    """
    coherence_cost: float = Field(default=0.0, ge=0)
    """Nats for n changes between neighbours in a sentence of n tokens, of both roles: the fused
    lasso of Lei et al. (2016).
    """
    target_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the tokens to keep (head or dependent), as many heads as dependents: a lambda for
    each role follows, of either sign, so that no less is kept either.
    """
    share_schedule: float = Field(default=0.0, ge=0, le=1)
    """Part of the policy's updates over which the share to keep falls, linearly, from all tokens to
    target_share; 0: it is target_share from the first.
    """

    @property
    def fixed_cost(self) -> float:
        """Lambda of the reward; 0 where a share is asked for: `rss_rl.learners.share_control`."""
        return self.sparsity_cost if self.target_share is None else 0.0

    @model_validator(mode="after")
    def _share_has_its_costs(self) -> RewardConfig:
        if self.target_share is not None and self.penalty != "sum":
            raise ValueError("target_share has a cost for each role by itself: set penalty to sum")
        if self.share_schedule and self.target_share is None:
            raise ValueError("share_schedule leads to target_share, which is not set")
        return self


class PhaseConfig(Section):
    """A stretch of training: who learns, and when it ends (whichever comes first)."""

    name: str = Field(min_length=1)
    supervised: bool = False
    """The classifier learns."""
    policy: bool = False
    """The policy learns."""
    selection: Literal["all", "sampled", "thresholded", "uniform_share"] = "sampled"
    """What the classifier is trained on: every token, sampled selections, those of the policy at
    test time (thresholded), or random ones whose share is drawn uniformly for each sentence and
    role, so that it learns what parts of any size mean (Jethani et al. 2021).
    """
    mixed_share: float = Field(default=0.0, ge=0, lt=1)
    """Of the examples of an update: those that the classifier reads with a random selection as of
    selection=uniform_share, in place of a sampled one.
    """
    steps: int | None = Field(default=None, ge=1)
    """Updates at most."""
    patience: int | None = Field(default=None, ge=1)
    """Ends after this many evaluations without a better dev loss (sampled: reward)."""
    restore_best: bool = False
    """Continue from the update that was best on dev."""
    alternate_every: int | None = Field(default=None, ge=1)
    """Learners take turns of this many updates instead of sharing each one."""

    @property
    def selects(self) -> bool:
        """Whether the classifier reads words that the policy selects."""
        return self.selection in ("sampled", "thresholded")

    @model_validator(mode="after")
    def _makes_sense(self) -> PhaseConfig:
        if not (self.supervised or self.policy):
            raise ValueError("nothing learns: set supervised or policy to true")
        if self.steps is None and self.patience is None:
            raise ValueError("the phase never ends: give steps, patience or both")
        if self.policy and self.selection != "sampled":
            raise ValueError(
                "the policy learns from sampled selections: selection must be 'sampled'"
            )
        if self.mixed_share and not (self.supervised and self.selection == "sampled"):
            raise ValueError(
                "mixed_share replaces sampled selections that the classifier reads: it needs"
                " supervised and selection=sampled"
            )
        if self.alternate_every and not (self.supervised and self.policy):
            raise ValueError("alternate_every needs both supervised and policy")
        return self


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


class PolicyUpdateConfig(Choice):
    """The update of the policy: its gradient, from rewards or through gates."""

    kind: ClassVar[Kind] = "policy_update"


class LearnerConfig(Section):
    """Both learners."""

    supervised: OptimizerConfig = OptimizerConfig()
    policy: OptimizerConfig = OptimizerConfig()
    policy_update: PolicyUpdateConfig | None = None
    """Of the policy's gradient: from the rewards of sampled selections, or through the gates. null:
    the default for the policy.
    """
    class_weight: Literal["balanced"] | None = None
    """balanced: all classes count the same in the loss and the reward, however rare they are, and
    evaluation.best_metric=auto is macro_f1. Weights of rows in the data are balanced, too.
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


class EvaluationConfig(Section):
    """When the dev split is scored, and how the best checkpoint is chosen."""

    every: int = Field(default=100, ge=1)
    """Updates between evaluations on dev."""
    selections: int = Field(default=4, ge=1)
    """K of the sampled evaluation."""
    batch_size: int = Field(default=128, ge=1)
    best_metric: str = Field(default="auto", min_length=1)
    """Dev metric that picks the best checkpoint: auto, loss, reward, or any that the run reports.
    auto: accuracy or pearson, as the labels are; macro_f1 with learner.class_weight.
    """
    all_tokens: bool = True
    """Also train the same model with every token selected, for as many steps."""


class CheckpointConfig(Section):
    """How often a run can be resumed from."""

    every: int = Field(default=200, ge=1)
    """Updates between checkpoints; one is written at each evaluation too."""
    keep_last: int = Field(default=1, ge=1)
    """The newest ones, beside those that are marked."""
    keep: Literal["best", "all"] = "best"
    """Of a finished run: the weights of its best checkpoint alone, or all that it has by then,
    optimisers included.
    """


class RunConfig(Section):
    """Everything a run depends on."""

    data: str
    """Directory or URI written by `rss-rl data prepare`."""
    seed: int = Field(default=0, ge=0)
    batch_size: int = Field(default=64, ge=1)
    """Examples an update."""
    batch_tokens: int | None = Field(default=None, ge=1)
    """Tokens of a batch at most, in training and evaluation, padding counted: rows times the sum
    over the sentences of the longest. Batches of more are cut, and a longer row is one by itself;
    rollouts hold K selections of as many. null: batch_size alone.
    """
    batch_lengths: Literal["auto", "similar", "mixed"] = "auto"
    """Texts of a training batch: of similar lengths, which leaves little padding, or of mixed
    lengths, so that what a batch keeps tells what all texts keep, which is what reward.target_share
    is held by. auto: mixed where a target share is set; similar where not.
    """
    model: ModelConfig = Field(default_factory=ModelConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    reward: RewardConfig = Field(default_factory=RewardConfig)
    learner: LearnerConfig = LearnerConfig()
    sampler: SamplerConfig = SamplerConfig()
    phases: tuple[PhaseConfig, ...] = Field(min_length=1, strict=False)
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    loggers: tuple[LoggerChoice, ...] = Field(
        default_factory=lambda: (LoggerChoice(name="tensorboard"),), strict=False
    )
    """Where the run can be watched, besides its files; see `rss-rl components loggers`."""

    @property
    def policy_update(self) -> PolicyUpdateConfig:
        """That of the policy's gradient: the one named, or else one that fits policy and reward."""
        offered = self.policy.capabilities
        if "log_probs" in offered and not self.reward.model.can("gates"):
            offered -= {"gates", "gates_first"}
        named = self.learner.policy_update
        return named or PolicyUpdateConfig(name=default_policy_update(offered))

    def _policy_update_fits(self) -> None:
        selections, update = self.sampler.selections, self.policy_update
        what = f"policy update '{update.name}'"
        if update.can("gates") and not self.reward.model.can("gates"):
            raise ValueError(
                f"{what} differentiates the classifier's loss, and reward.model"
                f" '{self.reward.model.name}' is something else: choose another policy update"
            )
        if update.can("multiple_selections") and selections < 2:
            raise ValueError(
                f"{what} with these options compares selections of one example:"
                " sampler.selections must be >= 2"
            )
        if update.can("antithetic") and selections % 2:
            raise ValueError(f"{what} draws selections in pairs: sampler.selections must be even")
        if not (update.can("lag") or update.can("gates")) and self.sampler.max_policy_lag:
            raise ValueError(f"{what} holds for the policy that drew: set sampler.max_policy_lag=0")
        offered = self.policy.capabilities
        for needed in ("log_probs", "gates"):
            if update.can(needed) and needed not in offered:
                raise ValueError(
                    f"{what} needs a policy with {needed}, and '{self.policy.name}' has none: set"
                    " learner.policy_update=null for one that fits, or choose another policy"
                )

    def _share_fits(self, learns: bool) -> None:
        if self.reward.target_share is None:
            return
        if not learns:
            raise ValueError("reward.target_share steers a policy: no phase has policy: true")
        if not self.policy.can("share"):
            raise ValueError(
                "reward.target_share steers which tokens have a probability over one half, and"
                f" policy '{self.policy.name}' does not declare that it keeps those (capability"
                " share): set reward.sparsity_cost"
            )
        if self.reward.share_schedule and self.policy_updates is None:
            raise ValueError(
                "reward.share_schedule is a part of the policy's updates, whose number is not"
                " known: give steps to every phase with policy: true"
            )

    @property
    def policy_updates(self) -> int | None:
        """Updates at most in which the policy learns; None where a phase has no number of steps."""
        updates = 0
        for phase in (phase for phase in self.phases if phase.policy):
            if phase.steps is None:
                return None
            each = phase.alternate_every
            turns, left = divmod(phase.steps, 2 * (each or phase.steps))
            updates += turns * each + max(0, left - each) if each else phase.steps
        return updates

    @property
    def updates(self) -> int | None:
        """Updates of all phases; None where a phase has no number of steps."""
        steps = [phase.steps or 0 for phase in self.phases]
        return sum(steps) if all(steps) else None

    @property
    def selects(self) -> bool:
        """Whether the policy selects words in the last phase; else the model reads every word."""
        return self.phases[-1].selects

    @property
    def compares(self) -> bool:
        """Whether the run is compared with a classifier of its own that reads every word."""
        return self.evaluation.all_tokens and self.selects and self.predicts

    @property
    def settled_lengths(self) -> Literal["similar", "mixed"]:
        """`batch_lengths` of a run that begins now."""
        if self.batch_lengths != "auto":
            return self.batch_lengths
        return "similar" if self.reward.target_share is None else "mixed"

    def with_from_run(self, change: Callable[[str], str | None]) -> RunConfig:
        """The configuration with `change` applied to `policy.from_run`, where it is set."""
        if self.policy.from_run is None:
            return self
        policy = self.policy.model_copy(update={"from_run": change(self.policy.from_run)})
        return self.model_copy(update={"policy": policy})

    @property
    def predicts(self) -> bool:
        """Whether the run has a trained classifier, or one that its reward asks: else it selects
        words and predicts nothing."""
        learns = any(phase.supervised for phase in self.phases)
        return learns or self.reward.model.can("classifier")

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> RunConfig:
        if (info.context or {}).get("in_use"):  # checked when the run began
            return self
        learns = any(phase.policy for phase in self.phases)
        if learns and not self.policy.can("learns"):
            raise ValueError(
                f"policy '{self.policy.name}' has nothing to learn: no phase may set policy: true"
            )
        if learns:
            self._policy_update_fits()
        self._share_fits(learns)
        if self.policy.from_run is not None and self.evaluation.all_tokens:
            raise ValueError(
                "the comparison with all tokens would not begin with the word vectors of"
                " policy.from_run: set evaluation.all_tokens=false"
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
