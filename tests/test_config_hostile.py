"""Hostile configurations: a ConfigError in bounded time and memory, never another exception."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rss_rl.config import RunConfig, load_config, parse_config
from rss_rl.errors import ConfigError

SOUND = """data: prepared/some
seed: 3
model: {hidden: 8, activation: relu}
phases:
  - {name: warm-up, supervised: true, selection: all, steps: 10}
"""
LAUGHS = "a0: &a0 [x, x]\n" + "".join(  # not deep, but 9^24 values
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 25)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 14)
)
STAIRS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 2000))
HOSTILE = {
    "aliases": LAUGHS,
    "merged aliases": MERGES,
    "an alias of itself": "data: &a [*a]",
    "a ladder of aliases": STAIRS,
    "many keys": "".join(f"k{n}:\n" for n in range(60_000)),
    "nested lists": "data: " + "[" * 50_000,
    "nested mappings": "data: " + "{a: " * 20_000,
    "nested blocks": "".join(" " * n + "a:\n" for n in range(400)),
    "closed nesting": "data: " + "[" * 90 + "]" * 90,
    "digits": "seed: " + "9" * 100_000,
    "hexadecimal": SOUND.replace("seed: 3", "seed: 0x" + "f" * 9000),
    "sexagesimal": "seed: " + "1:" * 5000 + "1",
    "no date": "data: 2026-99-99",
    "no time": "data: 2026-01-01 99:99:99",
    "a python object": "data: !!python/object/apply:os.system ['true']",
    "a python name": "data: !!python/name:os.system",
    "not a number": SOUND.replace("seed: 3", "reward: {sparsity_cost: .nan}"),
    "an infinity": SOUND.replace("seed: 3", "reward: {sparsity_cost: .inf}"),
    "an exponent": SOUND.replace("seed: 3", "reward: {sparsity_cost: 1e999999}"),
    "a bad base64": "data: !!binary '\u2603'",
    "a list as key": "? [a, b]\n: 1",
    "a mapping as key": "{{a: b}: 1}",
    "a null key": SOUND + "~: 1\n",
    "a long key": SOUND + "k" * 100_000 + ": 1\n",
    "a long value": SOUND.replace("seed: 3", "seed: " + "x" * 500_000),
    "a set": "data: !!set {a, b}",
    "pairs": "data: !!omap [a: 1]",
    "nothing": "",
    "a comment": "# nothing",
    "a NUL": "data: \x00",
    "two documents": SOUND + "---\n" + SOUND,
    "extends a list": "extends: [a.yaml]",
    "extends a number": "extends: 5",
    "extends what is no YAML": "extends: ../../../../../../etc/passwd",
    "extends by another way": "extends: ../../../../../../etc/passwd/x.yaml",
    "extends a NUL": 'extends: "a\\0.yaml"',
    "extends a long name": "extends: " + "a" * 5000 + ".yaml",
    "extends a directory": "extends: folder.yaml",
    "extends a pipe": "extends: pipe.yaml",
    "extends a device": "extends: zero.yaml",
    "extends a ring of links": "extends: ring.yaml",
    "extends something large": "extends: large.yaml",
    "extends a long chain": "extends: chain-0.yaml",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Things that a file may extend."""
    place = tmp_path_factory.mktemp("hostile")
    (place / "folder.yaml").mkdir()
    os.mkfifo(place / "pipe.yaml")
    (place / "zero.yaml").symlink_to("/dev/zero")
    (place / "ring.yaml").symlink_to("ring.yaml")
    with (place / "large.yaml").open("wb") as file:
        file.truncate(100 * 2**20)
    for number in range(100):
        (place / f"chain-{number}.yaml").write_text(f"extends: chain-{number + 1}.yaml")
    return place


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_an_error(name: str, folder: Path) -> None:
    path = folder / "hostile.yaml"
    path.write_bytes(HOSTILE[name].encode())
    used, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert len(str(caught.value)) < 4000
    assert "root:" not in str(caught.value)  # of /etc/passwd
    assert time.process_time() - started < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 200_000  # kilobytes


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
KEYS = [*RunConfig.model_fields, "else"]


@settings(max_examples=150)
@given(tree=st.dictionaries(st.sampled_from(KEYS), TREES, max_size=6))
def test_any_tree_is_a_configuration_or_an_error(tree: dict[str, Any]) -> None:
    try:
        parse_config(tree, where="here")
    except ConfigError as error:
        assert str(error).startswith("here: ")


@pytest.mark.parametrize("value", [10**5000, -(10**400), 10**400], ids=["5001", "-401", "401"])
def test_huge_numbers(value: int) -> None:
    base = {"data": "x", "phases": [{"name": "a", "supervised": True, "steps": 1}]}
    for change in ({"batch_size": -abs(value)}, {"reward": {"sparsity_cost": value}}):
        with pytest.raises(ConfigError):
            parse_config({**base, **change}, where="here")
    with pytest.raises(ConfigError, match="too large"):
        parse_config({**base, "seed": abs(value)}, where="here")
