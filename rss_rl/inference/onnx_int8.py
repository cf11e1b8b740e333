"""int8 dynamic quantisation of an exported ONNX graph's transformer, with onnxruntime.

The encoder's weights are quantised to int8 per channel, its activations at run time. The policy is
not quantised: rounding would move words across its threshold.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.inference.artifact import INT8_FILE
from rss_rl.inference.onnx_graph import write_onnx
from rss_rl.rollouts.snapshot import Models

_PRODUCTS = ("MatMul", "Gemm")
_ENCODER = "classifier.encoder"
_SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata key under which the exporter records the module path of a node."""


def write_with_int8(models: Models, inputs: Prepared, config: RunConfig, path: Path) -> None:
    """`write_onnx`, and next to its graph a copy with int8 matrix products in the encoder.

    Raises:
        ConfigError: see `write_onnx`; or the encoder is no transformer: others are too small to
            gain.
        CheckpointError: see `write_onnx`.
    """
    if not config.model.encoder.can("words"):
        raise ConfigError(
            f"encoder '{config.model.encoder.name}' has no int8 form: only the matrix products of"
            " a pretrained transformer are large enough to benefit",
            remedy="Export without --int8",
        )
    write_onnx(models, inputs, config, path)
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(str(path))
    # Drop inferred shapes: those of weights that quantisation transposes would be wrong.
    del model.graph.value_info[:]
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # hides advice to preprocess, which the exporter has done
    try:
        quantize_dynamic(
            model,
            str(path.with_name(INT8_FILE)),
            op_types_to_quantize=list(_PRODUCTS),
            nodes_to_quantize=_products(model),
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
    finally:
        root.setLevel(level)


def _products(model: Any) -> list[str]:
    """Names of the encoder's matrix products with constant weights."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [
        node.name
        for node in model.graph.node
        if node.op_type in _PRODUCTS
        and node.input[1] in weights
        and any(e.key == _SCOPES and f"'{_ENCODER}'" in e.value for e in node.metadata_props)
    ]
