"""A manifest or vocabulary from someone else, or damaged: a DataError, whatever it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from damaged import ROWS, refit, use

from rss_rl.data.manifest import MANIFEST_BYTES, VOCABULARY_BYTES
from rss_rl.errors import DataError


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
        ('"names": [', '"names": ["x", "x", ', "two classes are called 'x'"),
        ('"name": "penn"', '"name": "other"', "there is no tokenizer 'other'"),
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
