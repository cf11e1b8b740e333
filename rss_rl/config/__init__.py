"""The configuration of a run: one frozen, strict tree, read from YAML and `key=value` overrides."""

from __future__ import annotations

__all__ = [
    "CheckpointConfig",
    "Choice",
    "ClassifierChoice",
    "EncoderChoice",
    "EstimatorConfig",
    "EvaluationConfig",
    "LearnerConfig",
    "MetricChoice",
    "ModelConfig",
    "OptimizerConfig",
    "PhaseConfig",
    "PolicyConfig",
    "Reads",
    "RewardConfig",
    "RewardModelChoice",
    "RunConfig",
    "SamplerConfig",
    "Section",
    "load_config",
    "options_that_fit",
    "parse_config",
    "parse_section",
    "parse_value",
    "plugins_named",
    "read_tree",
    "trust_in_overrides",
    "with_folders",
    "with_overrides",
]

from rss_rl.config.choice import Choice, Section, plugins_named, with_folders
from rss_rl.config.loading import (
    load_config,
    options_that_fit,
    parse_config,
    parse_section,
    trust_in_overrides,
    with_overrides,
)
from rss_rl.config.sections import (
    CheckpointConfig,
    ClassifierChoice,
    EncoderChoice,
    EvaluationConfig,
    MetricChoice,
    ModelConfig,
    PhaseConfig,
    PolicyConfig,
    Reads,
    RewardConfig,
    RewardModelChoice,
    RunConfig,
)
from rss_rl.config.workers import EstimatorConfig, LearnerConfig, OptimizerConfig, SamplerConfig
from rss_rl.config.yaml_files import parse_value, read_tree
