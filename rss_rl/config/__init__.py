"""The configuration of a run: one frozen, strict tree, read from YAML and `key=value` overrides."""

from __future__ import annotations

__all__ = [
    "CheckpointConfig",
    "Choice",
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
    "parse_config",
    "parse_section",
    "parse_value",
    "read_tree",
]

from rss_rl.config.choice import Choice, Section
from rss_rl.config.loading import load_config, parse_config, parse_section
from rss_rl.config.sections import (
    CheckpointConfig,
    EvaluationConfig,
    LearnerConfig,
    MetricChoice,
    ModelConfig,
    OptimizerConfig,
    PhaseConfig,
    PolicyConfig,
    Reads,
    RewardConfig,
    RewardModelChoice,
    RunConfig,
    SamplerConfig,
)
from rss_rl.config.yaml_files import parse_value, read_tree
