"""Properties of every classifier: what it reads, what it costs, who gets gradient."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rss_rl.models.sentences import SentencesClassifier

every_variant = pytest.mark.parametrize("variant", small.VARIANTS)
FAITHFUL = [name for name in small.VARIANTS if not name.startswith("resan")]


@every_variant
@pytest.mark.parametrize("double", [True, False])
def test_a_sentence_alone_equals_itself_in_a_padded_batch(variant: str, double: bool) -> None:
    model = small.classifier(double=double, **small.VARIANTS[variant])
    lengths = [(6, 2), (1, 7), (3, 3)]
    tokens, valid, selections = small.pairs(*lengths)
    together = model(tokens, valid, selections)
    for row, sides in enumerate(lengths):
        alone = model(
            [t[row : row + 1, :n] for t, n in zip(tokens, sides, strict=True)],
            [v[row : row + 1, :n] for v, n in zip(valid, sides, strict=True)],
            [s[row : row + 1, :, :n] for s, n in zip(selections, sides, strict=True)],
        )
        tolerance = 1e-12 if double else 2e-5
        torch.testing.assert_close(alone[0], together[row], rtol=tolerance, atol=tolerance)


def zero_vector_cases() -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    tokens, valid = small.sentences(3, 5)
    nothing = torch.zeros(2, 2, 5, dtype=torch.bool)
    empty_tokens, empty = small.sentences(0, 0, width=4)
    no_width = torch.zeros(2, 0, dtype=torch.int64)
    return {
        "empty selection": (tokens, valid, nothing),
        "empty sentence": (empty_tokens, empty, torch.ones(2, 2, 4, dtype=torch.bool)),
        "batch without a token": (
            no_width,
            no_width.bool(),
            torch.zeros(2, 2, 0, dtype=torch.bool),
        ),
    }


@every_variant
@pytest.mark.parametrize("case", zero_vector_cases())
def test_nothing_selected_gives_finite_logits_and_gradients(variant: str, case: str) -> None:
    model = small.classifier(sentences=1, double=False, **small.VARIANTS[variant])
    tokens, valid, selection = zero_vector_cases()[case]
    vectors = model._encode(tokens, valid, selection)
    if variant in FAITHFUL or case != "empty selection":
        assert torch.equal(vectors, torch.zeros_like(vectors))
    logits = model([tokens], [valid], [selection])
    model.losses(logits, torch.tensor([0, 1])).sum().backward()
    assert torch.isfinite(logits).all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name


@every_variant
@pytest.mark.parametrize("labels", [small.CLASSES, small.SCORE], ids=lambda spec: spec.kind)
def test_every_parameter_gets_gradient(variant: str, labels: Any) -> None:
    model = small.classifier(labels, **small.VARIANTS[variant])
    tokens, valid, selections = small.pairs((6, 6), (7, 5), (5, 7), share=0.6)
    gold = torch.tensor([0, 1, 2]) if labels.kind == "classes" else torch.tensor([1.0, 2.5, 5.0])
    model.losses(model(tokens, valid, selections), gold).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if name.endswith("pool.score.bias"):
            continue  # a softmax over tokens does not see what is added to all of them
        flat = parameter.grad if name != "embedding.trainable" else parameter.grad.sum(0)
        assert (flat != 0).any(), name


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // 4)
        return result


def largest_tensor(model: SentencesClassifier, share_of_tokens: float) -> int:
    tokens, valid = small.sentences(200)
    selection = (torch.arange(200) < 200 * share_of_tokens).expand(1, 2, -1)
    with LargestTensor() as mode:
        model([tokens], [valid], [selection]).sum().backward()
    return mode.elements


@pytest.mark.parametrize("variant", ["resan", "faithful"])
def test_no_operation_makes_a_tensor_of_all_pairs(variant: str) -> None:
    # Kernels are no operations that torch could be asked about.
    model = small.classifier(
        sentences=1, double=False, attention="eager", **small.VARIANTS[variant]
    )
    few = largest_tensor(model, 0.05)  # 10 x 10 pairs of 4 features
    assert few <= 200 * max(3 * small.EMBEDDING, 2 * small.HIDDEN)
    assert largest_tensor(model, 1.0) >= 200 * 200  # so that the measure can fail
