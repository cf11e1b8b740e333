"""A manifest or vocabulary from someone else, or damaged: a DataError, whatever it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from damaged import ROWS, refit, use
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rss_rl.data.manifest import MANIFEST_BYTES, VOCABULARY_BYTES
from rss_rl.errors import DataError


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every key and item of a JSON tree."""
    found = [path] if path else []
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            found += places(value, (*path, key))
    return found


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([-1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**64, float("nan"), float("inf"), -1e308]),
    st.text(max_size=5),
    st.sampled_from(["..", "../x", "/etc/passwd", "train-00000.arrow\0", "a/b", "nan", "9" * 5000]),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_the_manifest_is_an_error_or_harmless(
    folder: Path, small_prepared: Path, data: st.DataObject
) -> None:
    tree = json.loads((small_prepared / "manifest.json").read_text())
    place = data.draw(st.sampled_from(places(tree)))
    node = tree
    for key in place[:-1]:
        node = node[key]
    if isinstance(node, dict) and data.draw(st.booleans()):
        del node[place[-1]]
    else:
        node[place[-1]] = data.draw(VALUES)
    (folder / "manifest.json").write_text(json.dumps(tree))
    try:
        use(folder)
    except DataError as error:
        assert error.remedy
        assert error.where


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"train":', '"../train":', "should match pattern"),
        (f'"rows": {ROWS}', f'"rows": {10**30}', "less than"),
        (f'"rows": {ROWS}', f'"rows": {ROWS + 1}', "does not hold 25 rows"),
        ('"sentences": 1', '"sentences": 1000000', "less than or equal to 2"),
        ('"sentences": 1', '"sentences": 2', "does not have 2 sentence slot"),
        ('"schema_version": 7', '"schema_version": 1', "has schema version 1"),
        ('"names": [', '"names": [], "x": [', "Unexpected keyword|there is no class"),
        ('"low": 0.0', '"low": NaN', "not a range of scores"),
        ('"longest": [', '"longest": [1], "x": [', "x: Extra inputs"),
    ],
)
def test_what_a_manifest_may_not_say(folder: Path, old: str, new: str, message: str) -> None:
    path = folder / "manifest.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(DataError, match=message) as error:
        use(folder)
    assert "repare the data again" in error.value.remedy


@pytest.mark.parametrize("bad", [3, None, ["a"], "\ud800"])
def test_a_vocabulary_holds_words(folder: Path, bad: object) -> None:
    path = folder / "vocabulary.json"
    words = json.loads(path.read_text())
    path.write_text(json.dumps([*words[:-1], bad]))
    refit(folder)
    with pytest.raises(DataError, match=r"vocabulary\.json: does not hold the 9 words"):
        use(folder)
    path.write_text(json.dumps(words[::-1]))
    refit(folder)
    with pytest.raises(DataError, match=r"vocabulary\.json: does not hold the 9 words"):
        use(folder)


def test_json_beyond_all_measure_is_refused_unread(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "vocabulary.json"
    with path.open("r+b") as stream:
        stream.truncate(VOCABULARY_BYTES + 1)  # a hole: no disk is used
    refit(folder)
    with pytest.raises(DataError, match=r"vocabulary: .*words, \d+ bytes"):
        use(folder)
    with (folder / "manifest.json").open("r+b") as stream:
        stream.truncate(100 * MANIFEST_BYTES)
    monkeypatch.setattr("pydantic.BaseModel.model_validate_json", None)
    with pytest.raises(DataError, match=f"larger than {MANIFEST_BYTES} bytes"):
        use(folder)
