"""Old configurations build, from equal seeds, the parameters that b9a4141 built: names and bits.

The digests were computed by b9a4141, from configurations with the keys of that version.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch

from rss_rl.config import parse_config
from rss_rl.models.build import build_classifier
from rss_rl.types import LabelSpec

CLASSES, SCORE = LabelSpec("classes", ("no", "maybe", "yes")), LabelSpec("score", low=1.0, high=5.0)
TASKS = {
    "classes": (CLASSES, 1),
    "pair": (CLASSES, 2),
    "score": (SCORE, 2),
    "sentence": (LabelSpec("sentence"), 2),
    "candidate": (LabelSpec("candidate"), 2),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "cnn": {"cnn_windows": [2, 3], "cnn_filters": 3},
    "hierarchical-cnn": {"cnn_layers": 2, "cnn_window": 3},
    "multi-head": {"attention_heads": 2},
    "biblosan": {"block_length": 2},
    "resan w/o highway": {"encoder": "resan", "highway": False},
    "resan keep": {"encoder": "resan", "head_hidden": 3, "keep_unselected": True},
    "biblosan w-o local": {"encoder": "biblosan", "block_length": 2, "block_local": False},
    "biblosan w-o global": {"encoder": "biblosan", "block_length": 2, "block_global": False},
}
DIGESTS = {
    "resan/classes": "c379f383a71bbd81",
    "resan/pair": "8f1525e8eabf8bb2",
    "resan/score": "8d79e85c1930b0e9",
    "resan/sentence": "b69178c06664436e",
    "source2token/classes": "dbf8e7722ce3b8a6",
    "source2token/pair": "2507cf771a902e57",
    "source2token/score": "bb4cc6c9ed646213",
    "source2token/sentence": "65da7ba133d44377",
    "mean/classes": "6770ca9cf6ddf08b",
    "mean/pair": "7102ab4367984bbf",
    "mean/score": "e7bc0318c6e4e64c",
    "mean/sentence": "15a13a59d834bac1",
    "disan/classes": "4a407b7d510740e6",
    "disan/pair": "074b94d94a170790",
    "disan/score": "a51d2f97eb630ea0",
    "disan/sentence": "7f3a5475044e7096",
    "bilstm/classes": "c0d18b52f16fd706",
    "bilstm/pair": "03b3c57d2e762588",
    "bilstm/score": "515344b46dcc8292",
    "bilstm/sentence": "40ec45ef79b02ca9",
    "bigru/classes": "768586ec98f2fb86",
    "bigru/pair": "75243a4a7c8b1742",
    "bigru/score": "18398a0cdc768d98",
    "bigru/sentence": "1dd90703ebede794",
    "bisru/classes": "08f46415521edb12",
    "bisru/pair": "4617eb12676243d7",
    "bisru/score": "ff12c8daa485e2b9",
    "bisru/sentence": "6277de6de7c5be12",
    "cnn/classes": "bdab299ab5bf2e9d",
    "cnn/pair": "5421443464cd85c0",
    "cnn/score": "f6d933da3abdc113",
    "cnn/sentence": "46dc42ba3a492712",
    "hierarchical-cnn/classes": "4a2e0ca70c2ffa71",
    "hierarchical-cnn/pair": "e3d917edf408fc1d",
    "hierarchical-cnn/score": "3c3a8559f1bd023a",
    "hierarchical-cnn/sentence": "32b61cfaa801bb4a",
    "multi-head/classes": "aedf81de35178d9d",
    "multi-head/pair": "4b9f735bb7aa4670",
    "multi-head/score": "fc51843685484005",
    "multi-head/sentence": "fd2ff7e56b758e7f",
    "attention/classes": "066ca42f813ab648",
    "attention/pair": "66f2958f8a920d2c",
    "attention/score": "7417d15ad3d82dc0",
    "attention/sentence": "1514cd7a1a68d49b",
    "biblosan/classes": "ee773d5b82f8a627",
    "biblosan/pair": "955d3123734c7009",
    "biblosan/score": "2ae728c27526ab77",
    "biblosan/sentence": "8208c41e84ffdc53",
    "stanford-entities/candidate": "5aac6cbbf71a8bf5",
    "stanford-words/candidate": "4d562ea1fcd2272f",
    "stanford-pointer/candidate": "f283f7950364f830",
    "sequential-entities/candidate": "d20dce6c7da7b566",
    "sequential-words/candidate": "79a41b81b4cca3e3",
    "sequential-pointer/candidate": "c6e07258f24d5148",
    "resan w/o highway/pair": "be0e05da3da9fd11",
    "resan keep/pair": "dedd380709b0f903",
    "biblosan w-o local/pair": "ae419393bccd4008",
    "biblosan w-o global/pair": "d07ddad23f354f0d",
}


def old_settings(name: str) -> dict[str, Any]:
    if name.startswith(("stanford-", "sequential-")):
        reader, output = name.split("-")
        sizes = {"reader_hidden": 3, "cloze_entities": 4}
        return {"reader": reader, "cloze_output": output, **sizes}
    return {"encoder": name, "hidden": 4} | SETTINGS.get(name, {})


@pytest.mark.parametrize("case", DIGESTS)
def test_names_and_first_weights_are_those_of_b9a4141(case: str) -> None:
    name, task = case.rsplit("/", 1)
    phases = [{"name": "one", "supervised": True, "steps": 1}]
    tree = {"data": "d", "model": old_settings(name), "phases": phases}
    config = parse_config(tree, where="an old file")
    vectors = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    vectors[0] = 0
    torch.manual_seed(11)
    model = build_classifier(config.model, *TASKS[task], vectors, 6)
    digest = hashlib.sha256()
    for key, value in model.state_dict().items():
        digest.update(f"{key} {tuple(value.shape)}\n".encode())
        digest.update(value.numpy().tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[case]
