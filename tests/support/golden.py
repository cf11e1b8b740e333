"""What the golden set of commit b9a4141 is compared in, for its maker and its test.

Numbers are compared to the bit where this machine computes as the one that made the set did
(`machine`), and within rounding elsewhere. Selections and predictions are always compared exactly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rss_rl
from rss_rl.data.store import open_prepared
from rss_rl.results.score import score_run
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import ALL_TOKENS

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "b9a4141"
MODES = ("thresholded", "sampled", "all")
FEW = 4
"""Tensors of at most so many values are stored whole."""

TEXTS: dict[str, list[Any]] = {
    "sentences": [
        "the fox did surely chase the owl behind the old mill .",
        "last evening never did the heron tame the wolf",
        "Yesterday the sailors did rule a zebra",
    ],
    "pairs": [
        ("the fox did surely beat the owl while the trout slept", "a beast did indeed rule a bird"),
        ("never did the owl chase the fox and the perch rested", "later did a fish tame a bird"),
        ("the wolf did hardly tame the zebra", "a bird did once beat a beast"),
    ],
    "cloze": [
        ("@entity0 met @entity1 . @entity2 slept .", "@placeholder met @entity1"),
        ("@entity0 slept . @entity1 called @entity2 .", "@entity1 called @placeholder"),
        ("@entity0 left @entity1 . zebra .", "@placeholder left @entity1"),
    ],
    "passages": [
        ("The otter slept. The robin sang.", "who sang ?"),
        ("The mole dug. The pike swam. The hare ran.", "who dug ?"),
        ("The zebra ran. The swan slept.", "who slept ?"),
    ],
}  # fmt: skip
"""Examples to predict, by prepared data set; zebra is in no vocabulary."""


def machine() -> str:
    """Equal on two machines that round alike: a digest of what a small network computes."""
    torch.set_num_threads(1)  # as every golden run has it
    draw = torch.from_numpy(np.random.default_rng(5).normal(size=(9, 17, 32)).astype(np.float32))
    weight = draw[0].clone().requires_grad_()
    gru = torch.nn.GRU(17, 8, bidirectional=True)
    for parameter in gru.parameters():
        parameter.data.copy_(draw.flatten()[: parameter.numel()].view(parameter.shape) / 8)
    hidden, _ = gru(torch.nn.functional.elu(draw @ weight.T))
    whole = (hidden.tanh().exp().log_softmax(1) * torch.sigmoid(hidden)).sum()
    whole.backward()
    found = hashlib.sha256(
        repr((torch.__version__, torch.backends.cpu.get_cpu_capability())).encode()
    )
    for value in (whole, hidden, weight.grad, *(p.grad for p in gru.parameters())):
        assert value is not None
        found.update(value.detach().numpy().tobytes())
    return found.hexdigest()


def digest(value: np.ndarray[Any, Any]) -> str:
    """SHA-256 of a tensor: its type, shape and bytes."""
    found = hashlib.sha256(f"{value.dtype.str} {value.shape} ".encode())
    found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def contents(prepared: Path) -> str:
    """SHA-256 of prepared data: vocabulary, vectors, and each row as words and as batches."""
    data = open_prepared(prepared)
    found = hashlib.sha256(repr((list(data.vocabulary.words), data.labels)).encode())
    found.update(digest(np.array(data.vectors())).encode())
    for name in ("train", "dev", "test"):
        split = data.split(name)
        for row in range(len(split)):
            found.update(repr((split.example_id(row), split.words(row))).encode())
        batch = split.batch(range(len(split)))
        arrays = (*batch.tokens, *(batch.rationale or ()), batch.labels, batch.marks)
        for array in arrays:
            found.update(b"none" if array is None else digest(array).encode())
    return found.hexdigest()


def final_tensors(run: Path) -> dict[str, Any]:
    """By mark of a checkpoint: its step, a digest of all tensors, of each, and small ones' values.

    Of the last checkpoint alone each tensor has its digest (the first 12 digits) and its values.
    """
    marks = {"latest": (run, "latest"), "best": (run, "best")}
    if (run / ALL_TOKENS).is_dir():
        marks[f"{ALL_TOKENS}/latest"] = (run / ALL_TOKENS, "latest")
    found: dict[str, Any] = {}
    for name, (part, mark) in marks.items():
        checkpoint = load_checkpoint(part, mark)
        tensors = dict(sorted(checkpoint.tensors.items()))
        each = {key: digest(value) for key, value in tensors.items()}
        whole = hashlib.sha256(json.dumps(each).encode()).hexdigest()
        found[name] = {"step": checkpoint.step, "sha256": whole}
        if name == "latest":
            found[name]["tensors"] = {key: value[:12] for key, value in each.items()}
            found[name]["values"] = {
                key: value.ravel().tolist()
                for key, value in tensors.items()
                if value.size <= FEW and key.startswith(("classifier/", "policy/"))
            }
    return found


def scores(run: Path) -> dict[str, Any]:
    """Of the last checkpoint on dev, by mode, with its step."""
    step, metrics = score_run(run, "dev", MODES, which="latest")
    return {"step": step, "metrics": metrics}


def predictions(path: Path, examples: list[Any], which: str = "latest") -> dict[str, Any]:
    """What a run or an export says of examples.

    exact    words, which of them the vocabulary has, bits (heads, dependents) and predictions
    numbers  probabilities of the words and of the classes
    """
    exact, numbers = [], []
    for found in rss_rl.load(path, which).predict(examples):
        exact.append({
            "words": [list(s.words) for s in found.sentences],
            "known": [_bits(s.known) for s in found.sentences],
            "selection": [[_bits(role) for role in s.selection] for s in found.sentences],
            "prediction": found.prediction,
        })  # fmt: skip
        numbers.append({
            "words": [None if s.probabilities is None else s.probabilities.tolist()
                      for s in found.sentences],
            "classes": found.class_probabilities,
        })  # fmt: skip
    return {"exact": exact, "numbers": numbers}


def _bits(values: Any) -> str:
    return "".join(str(int(value)) for value in values)


def final_report(run: Path) -> dict[str, Any]:
    """report.json without times."""
    report: dict[str, Any] = json.loads((run / "report.json").read_text())
    return {
        key: report[key] for key in report if key not in ("wall_seconds", "examples_per_second")
    }


def assert_numbers(found: Any, expected: Any, *, exact: bool, where: str = "") -> None:
    """Two trees of JSON are equal; floats within rounding unless `exact`.

    Measures that were not yet known may be found beside those that are expected.
    """
    if isinstance(expected, Mapping):
        assert isinstance(found, Mapping), where
        measures = "metrics" in where or "splits" in where or "scores" in where
        more = found.keys() - expected.keys() if measures else set()
        assert found.keys() - more == expected.keys(), where
        for key, value in expected.items():
            assert_numbers(found[key], value, exact=exact, where=f"{where}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, value in enumerate(expected):
            assert_numbers(found[number], value, exact=exact, where=f"{where}/{number}")
    elif isinstance(expected, float) and not exact:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=where)
    else:
        assert found == expected, where
