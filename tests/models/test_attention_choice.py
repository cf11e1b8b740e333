"""Who computes attention is decided by the configuration, the model's size and the machine."""

from __future__ import annotations

import numpy as np
import pytest
from model_configs import VECTOR_ENCODERS, model_config

from rss_rl.config import ModelConfig
from rss_rl.errors import ConfigError
from rss_rl.models import attention_choice as module
from rss_rl.models.attention_choice import (
    attention_backend,
    loadable_attention,
    outer_backend,
    settled_attention,
)
from rss_rl.models.build import build_classifier, build_encoder
from rss_rl.ops import native
from rss_rl.types import LabelSpec


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "missing_compiler", lambda: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("name", "backend"), [("auto", "compiled"), ("eager", "eager"), ("compiled", "compiled")]
)
def test_a_choice(name: module.AttentionName, backend: str) -> None:
    assert attention_backend(name) == backend


@pytest.mark.parametrize(
    "config",
    [ModelConfig(attention="eager"), ModelConfig(encoder="mean")],
    ids=["eager", "without attention"],
)
def test_what_needs_no_kernels_compiles_none(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_loaded", lambda *_: pytest.fail("loaded or compiled kernels"))
    native._tried.cache_clear()
    try:
        assert settled_attention(config) == config.attention
        assert loadable_attention(config) == config
        assert outer_backend(config) == "eager"
        build_classifier(config, LabelSpec("classes", ("no", "yes")), 2, np.ones((5, 4)), 5)
    finally:
        native._tried.cache_clear()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("encoder", VECTOR_ENCODERS)
def test_what_is_settled_is_what_the_models_are_built_with(
    encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder whose parts take a backend is one that `auto` is settled for, and no other."""
    options = {"block_length": 2} if encoder == "biblosan" else {}
    config = model_config(encoder=encoder, hidden=8, **options)
    settled = settled_attention(config)
    parts = build_encoder(config, 4).modules()  # type: ignore[attr-defined]
    backends = {part._backend for part in parts if hasattr(part, "_backend")}
    assert settled == ("compiled" if "compiled" in backends else "auto")


def test_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Attention is eager, which a run that has some is warned of; what was asked for is refused."""
    monkeypatch.setattr(module, "missing_compiler", lambda: "no compiler")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert attention_backend("auto") == "eager"
    for config in (ModelConfig(hidden=4), ModelConfig(encoder="bilstm")):
        settled_attention(config)
    (warned,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "no compiler" in warned.getMessage()
    with pytest.raises(ConfigError, match="no compiler"):
        attention_backend("compiled")
