"""The ONNX graph computes what torch computes, for any number of texts of any length."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import tiny_transformers
from readers import TASKS, reader

from rss_rl.data.vocabulary import PAD
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.inference import onnx_graph
from rss_rl.inference.artifact import INT8_FILE
from rss_rl.inference.onnx_graph import TOLERANCE, write_onnx
from rss_rl.inference.onnx_int8 import write_with_int8

for _name in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(_name, reason="rss-rl[onnx] is not installed")

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "faithful": ("classes", {}),
    "paper's": ("score", {"keep_unselected": True}),
    "disan": ("classes", {"encoder": "disan"}),
    "bilstm": ("pair", {"encoder": "bilstm"}),
    "whole example": ("pair", {"encoder": "mean", "reads": "example"}),
    "source2token": ("classes", {"encoder": "source2token"}),
}
READS: dict[str, tuple[str, dict[str, Any]]] = {
    "the first piece of each window, kept positions": (
        "classes",
        {"pool": "first", "positions": "kept"},
    ),
    "pairs": ("pair", {}),
    "adapters": ("score", {"learns": "lora"}),
}
TEXTS = ("w3 w9 w4 w8", "w5", "w7 w5 zyx w6 w11 w12 w13 w14 w2 w3 w4")


@pytest.mark.parametrize("name", CASES)
def test_the_graph_equals_the_model(name: str, tmp_path: Path) -> None:
    task, settings = CASES[name]
    compare(task, settings, tmp_path)


@pytest.mark.parametrize("within", ["text", "sentence"])
def test_the_graph_smooths_as_torch_does(within: str, tmp_path: Path) -> None:
    """A sentence ends with w7, which the policy's vocabulary has as a full stop."""
    by = {"name": "smooth", "within": within}
    compare("classes", {"encoder": "source2token", "by": by}, tmp_path)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It reads 14 pieces at once, so the longest text has windows."""
    return tiny_transformers.save(tmp_path_factory.mktemp("tiny") / "bert")


@pytest.mark.parametrize("name", READS)
def test_the_graph_of_a_transformer_reads_what_it_reads(
    name: str, bert: Path, tmp_path: Path
) -> None:
    task, options = READS[name]
    settings = {"encoder": "transformer", "pretrained": str(bert)} | options
    # The graph has the words of training alone; torch reads others by their pieces.
    compare(task, settings, tmp_path, [text.replace("zyx", "w8") for text in TEXTS])


def compare(task: str, settings: dict[str, Any], tmp_path: Path, of: Sequence[str] = TEXTS) -> None:
    """A graph beside torch, on texts together, alone and padded further."""
    import onnxruntime

    model = reader(task, seed=3, **settings)
    path = tmp_path / "model.onnx"
    write_onnx(model.models, model.inputs, model.config, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for texts in (of, of[1:2], of[2:]):
        examples = [(text,) * TASKS[task][1] for text in texts]
        encoded = [model.encode(example) for example in examples]
        chosen = model.choose(encoded)
        names = ("tokens", "tokens_b")
        fed = {n: ids.numpy() for n, ids in zip(names, chosen.tokens, strict=False)}
        wider = {n: np.pad(ids, ((0, 0), (0, 2)), constant_values=PAD) for n, ids in fed.items()}
        logits = model.logits(chosen).numpy()
        for given in (fed, wider):
            found, *others = session.run(None, given)
            np.testing.assert_allclose(found, logits, rtol=0, atol=TOLERANCE)
            width = chosen.selections[-1].shape[-1]
            np.testing.assert_array_equal(others[-1][..., :width], chosen.selections[-1].numpy())
    if task == "score":
        predicted = [found.prediction for found in model.predict(examples)]
        np.testing.assert_allclose(others[0], predicted, atol=TOLERANCE)


def test_the_exporter_tells_the_user_nothing_of_its_own_parts(tmp_path: Path) -> None:
    output: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: output.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        model = reader("classes")
        write_onnx(model.models, model.inputs, model.config, tmp_path / "model.onnx")
        assert output == []
        levels = [logging.getLogger(name).level for name in onnx_graph._TALKATIVE]
        assert logging.ERROR not in levels  # quiet while it writes, and no longer
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def test_a_graph_that_computes_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = reader("classes", encoder="mean")
    record = onnx_graph._record

    def record_another(graph: Any, tokens: Any, score: bool) -> Any:
        other = reader("classes", encoder="mean", seed=1)
        return record(type(graph)(other.models, True, score).eval(), tokens, score)

    monkeypatch.setattr(onnx_graph, "_record", record_another)
    with pytest.raises(CheckpointError, match="differs from the model"):
        write_onnx(model.models, model.inputs, model.config, tmp_path / "model.onnx")


def test_what_has_no_graph_is_refused(bert: Path, tmp_path: Path) -> None:
    for task, settings, message in (
        ("sentence", {}, "choose a sentence of a passage"),
        (
            "classes",
            {"encoder": "bisru"},
            "'bisru' with policy 'rss' .*the encoder has no such form",
        ),
    ):
        model = reader(task, **settings)
        with pytest.raises(ConfigError, match=message):
            write_onnx(model.models, model.inputs, model.config, tmp_path / "model.onnx")
    plain = reader("classes", encoder="mean")
    chained = plain.models._replace(policy=small.policy(name="crf", double=False))
    with pytest.raises(ConfigError, match="cannot be written as ONNX"):
        write_onnx(chained, plain.inputs, plain.config, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_int8_changes_the_logits_a_little_and_the_selection_not(bert: Path, tmp_path: Path) -> None:
    import onnxruntime

    model = reader("classes", encoder="transformer", pretrained=str(bert))
    path = tmp_path / "model.onnx"
    write_with_int8(model.models, model.inputs, model.config, path)
    chosen = model.choose([model.encode((text.replace("zyx", "w8"),)) for text in TEXTS])
    given = {"tokens": chosen.tokens[0].numpy()}
    exact, rounded = (
        onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]).run(None, given)
        for file in (path, path.with_name(INT8_FILE))
    )
    np.testing.assert_array_equal(exact[1], rounded[1])
    gap = np.abs(exact[0] - rounded[0]).max()
    assert TOLERANCE < gap < 0.1 * np.abs(exact[0]).max()
    kinds = [node.op_type for node in _nodes(path.with_name(INT8_FILE))]
    layers, products = int(model.models.classifier.encoder.reader.model.config.num_hidden_layers), 6
    assert kinds.count("MatMulInteger") == layers * products
    assert "MatMulInteger" not in [node.op_type for node in _nodes(path)]


def _nodes(path: Path) -> Any:
    import onnx

    return onnx.load(str(path)).graph.node


def test_int8_is_for_transformers(tmp_path: Path) -> None:
    model = reader("classes", encoder="mean")
    with pytest.raises(ConfigError, match="encoder 'mean' has no int8 form"):
        write_with_int8(model.models, model.inputs, model.config, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
