"""Configurations of models in one breath: options of encoder and classifier beside other keys."""

from __future__ import annotations

from typing import Any

from torch import nn

from rss_rl.components import built_in_names, find_component
from rss_rl.config import ModelConfig

VECTOR_ENCODERS = [
    name
    for name in built_in_names("encoder")
    if "pretrained" not in find_component("encoder", name).options.model_fields
]
"""Those that need no more than word vectors; others have tests of their own."""


def model_config(**settings: Any) -> ModelConfig:
    """Keys of `ModelConfig`, and options of its encoder or of the one classifier that has them."""
    return ModelConfig(**model_tree(**settings))


def model_tree(**settings: Any) -> dict[str, Any]:
    """The same as a section of a configuration tree."""
    own = {key: settings.pop(key) for key in [*settings] if key in ModelConfig.model_fields}
    encoder = find_component("encoder", own.get("encoder", "resan"))
    options = {key: settings.pop(key) for key in [*settings] if key in encoder.options.model_fields}
    own["encoder"] = {"name": encoder.name, "options": options}
    if settings:
        every = [find_component("classifier", name) for name in built_in_names("classifier")]
        (name,) = (c.name for c in every if settings.keys() <= c.options.model_fields.keys())
        own["classifier"] = {"name": name, "options": settings}
    return own


def parameter_count(module: nn.Module, *, without: nn.Module | None = None) -> int:
    """Number of parameters, except for those of `without`, such as the embeddings."""
    left_out = set() if without is None else {id(p) for p in without.parameters()}
    return sum(p.numel() for p in module.parameters() if id(p) not in left_out)
