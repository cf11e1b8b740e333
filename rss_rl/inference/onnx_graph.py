"""A trained classifier with its thresholded selection as one ONNX graph.

inputs    tokens (for pairs also tokens_b), int64 [B, N]: vocabulary ids, right-padded with 0
outputs   logits [B, C]; for score tasks also score [B];
          selection (selection_b), bool [B, 2, N]: heads and dependents

B and N are dynamic. The graph masks the words that the models remove, so that no shape depends on
data; the results are the same.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.data.vocabulary import PAD
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.rollouts.snapshot import Models
from rss_rl.types import ROLES

TOLERANCE = 1e-4
"""Largest accepted difference from torch."""
_SHAPES = ((3, 7), (1, 1), (5, 16))
"""(B, N) of the inputs that a graph is checked on."""
_TALKATIVE = (
    "torch.onnx._internal.exporter._registration",  # missing torchvision, which we do not use
    "onnxscript.optimizer._constant_folding",  # operations that are not folded
    "onnx_ir._convenience",  # empty lists of axes
)
"""Loggers whose warnings concern the exporter's internals."""


class _Graph(nn.Module):
    """The exported module: token ids to logits and selections."""

    def __init__(self, models: Models, selects: bool, score: bool) -> None:
        super().__init__()
        self.classifier, self.policy = models.classifier, models.policy
        self._models = models
        self._selects, self._score = selects, score

    def forward(self, *tokens: Tensor) -> tuple[Tensor, ...]:
        """Map the token ids of each text, [B, N_s], to the outputs."""
        valid = [ids != PAD for ids in tokens]
        selections = [mask[:, None].expand(-1, ROLES, -1) for mask in valid]
        if self._selects:
            inputs = self._models.policy_inputs(tokens, valid)
            pairs = zip(inputs, valid, strict=True)
            selections = [self.policy.threshold(vectors, mask) for vectors, mask in pairs]
        logits = self.classifier(list(tokens), valid, selections)
        score = (self.classifier.predict(logits),) if self._score else ()
        return (logits, *score, *selections)


def write_onnx(models: Models, inputs: Prepared, config: RunConfig, path: Path) -> None:
    """Export the graph, write it and compare it with torch.

    Raises:
        ConfigError: the task, encoder or policy cannot be exported to ONNX, or `rss-rl[onnx]` is
            not installed.
        CheckpointError: the graph's outputs differ from torch.
    """
    if inputs.labels.chooses:
        raise ConfigError(
            f"tasks that choose a {inputs.labels.kind} of a passage have no ONNX form",
            remedy="Export without --onnx",
        )
    if not config.model.encoder.can("onnx"):
        raise _export_error(config, "the encoder has no such form")
    if models.context is not None and config.selects:
        raise _export_error(config, "the policy reads a pretrained encoder's states")
    _require("onnx", "onnxscript", "onnxruntime")
    score = inputs.labels.kind == "score"
    graph = _Graph(models, config.selects, score).eval()
    try:
        program = _record(graph, _examples(models, inputs.sentences, _SHAPES[0]), score)
    except Exception as error:  # the exporter lets any exception through
        raise _export_error(config, type(error).__name__) from error
    # Export unrolls loops over tokens, which fixes the length.
    sizes = [size for given in program.model.graph.inputs for size in given.shape or ()]
    if any(isinstance(size, int) for size in sizes):
        raise _export_error(config, "the graph would be for texts of one length")
    program.save(str(path), external_data=False)
    try:
        check_onnx(graph, path, models, inputs.sentences)
    except CheckpointError:
        raise
    except Exception as error:  # raised by the runtime if the graph has a fixed length after all
        path.unlink()
        raise _export_error(config, type(error).__name__) from error


def _export_error(config: RunConfig, why: str) -> ConfigError:
    return ConfigError(
        f"encoder '{config.model.encoder.name}' with policy '{config.policy.name}' cannot be"
        f" written as ONNX ({why})",
        remedy="Export without --onnx",
    )


def _record(graph: nn.Module, tokens: tuple[Tensor, ...], score: bool) -> torch.onnx.ONNXProgram:
    suffixes = ("", "_b")[: len(tokens)]
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch, 1: torch.export.Dim(f"length{suffix}")} for suffix in suffixes)
    with _quiet():
        program = torch.onnx.export(
            graph,
            tokens,
            dynamo=True,
            dynamic_shapes=(shapes,),
            input_names=[f"tokens{suffix}" for suffix in suffixes],
            output_names=[
                "logits",
                *(["score"] if score else []),
                *(f"selection{suffix}" for suffix in suffixes),
            ],
            verbose=False,
        )
    assert program is not None
    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about its internals; errors are still reported."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _require(*names: str) -> None:
    from importlib.util import find_spec

    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)} not installed",
            remedy="Install rss-rl[onnx], or leave out --onnx",
        )


def _examples(models: Models, texts: int, shape: tuple[int, int]) -> tuple[Tensor, ...]:
    """Random token ids, S x int64 [B, N], of lengths N, N - 1, ... (at least 1)."""
    embedding = models.classifier.embedding
    words = embedding.trainable.shape[0] + len(embedding.fixed)
    draw = np.random.default_rng(shape)
    rows, longest = shape
    lengths = np.maximum(1, longest - np.arange(rows))[:, None]
    real = np.arange(longest) < lengths
    ids = (np.where(real, draw.integers(1, words, shape), PAD) for _ in range(texts))
    return tuple(torch.from_numpy(array) for array in ids)


def check_onnx(graph: nn.Module, path: Path, models: Models, texts: int) -> None:
    """Compare a written graph with torch on batches of several sizes.

    Raises:
        CheckpointError: an output differs by more than TOLERANCE.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    for shape in _SHAPES:
        tokens = _examples(models, texts, shape)
        with torch.inference_mode():
            expected = graph(*tokens)
        fed = {name: ids.numpy() for name, ids in zip(names, tokens, strict=True)}
        found: list[Any] = session.run(None, fed)
        for ours, theirs in zip(expected, found, strict=True):
            gap = np.abs(ours.numpy().astype(np.float64) - theirs).max()
            if not gap <= TOLERANCE:
                raise CheckpointError(
                    f"the ONNX graph differs from the model by {gap:.2g} on {shape[0]} texts of"
                    f" {shape[1]} words",
                    where=str(path),
                    remedy="Export without --onnx",
                )
