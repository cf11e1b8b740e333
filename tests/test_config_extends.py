"""Configuration files that extend another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rss_rl.config import load_config
from rss_rl.errors import ConfigError

BASE = """
data: prepared/some
seed: 3
model: {hidden: 8, activation: relu}
learner: {supervised: {l2: 0.1, eps: 0.5}}
phases:
  - {name: warm-up, supervised: true, selection: all, steps: 10}
  - {name: co-train, supervised: true, policy: true, steps: 5}
"""


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_sections_are_merged_and_values_and_lists_replaced(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", BASE)
    top = write(
        tmp_path,
        "top.yaml",
        "extends: base.yaml\nseed: 4\nmodel: {hidden: 9}\nlearner: {supervised: {l2: 0.2}}\n"
        "reward: {penalty: product}\nphases: [{name: only, supervised: true, steps: 1}]\n",
    )
    config = load_config(top)
    assert (config.data, config.seed) == ("prepared/some", 4)
    assert (config.model.hidden, config.model.activation) == (9, "relu")
    assert (config.learner.supervised.l2, config.learner.supervised.eps) == (0.2, 0.5)
    assert config.reward.penalty == "product"
    assert [phase.name for phase in config.phases] == ["only"]


def test_a_chain_is_read_relative_to_each_file(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", BASE)
    write(
        tmp_path / "paper", "middle.yaml", "extends: ../base.yaml\nmodel: {dropout: 0.5}\nseed: 4\n"
    )
    top = write(tmp_path, "top.yaml", "extends: paper/middle.yaml\nseed: 5\n")
    config = load_config(top, ["model.hidden=7", "phases.1.steps=2"])
    assert (config.seed, config.model.hidden, config.model.dropout) == (5, 7, 0.5)
    assert config.phases[1].steps == 2


@pytest.mark.parametrize(
    ("files", "wanted", "where"),
    [
        ({"top.yaml": "extends: none.yaml\n"}, "cannot read the configuration", "none.yaml"),
        ({"top.yaml": "extends: top.yaml\n"}, "extends itself", "top.yaml"),
        (
            {"top.yaml": "extends: a.yaml\n", "a.yaml": "extends: top.yaml\n"},
            "extends itself",
            "top.yaml",
        ),
        ({"top.yaml": "extends: a.yaml\n", "a.yaml": "[1]"}, "mapping of keys", "a.yaml"),
        (
            {"top.yaml": "extends: a.yaml\n", "a.yaml": "modle: {}"},
            "unknown key 'modle'",
            "top.yaml",
        ),
    ],
    ids=["missing", "itself", "ring", "no mapping", "unknown key"],
)
def test_files_that_cannot_be_extended(
    tmp_path: Path, files: dict[str, str], wanted: str, where: str
) -> None:
    for name, content in files.items():
        write(tmp_path, name, BASE + content if "modle" in content else content)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "top.yaml")
    assert wanted in str(caught.value)
    assert Path(caught.value.where).name == where
