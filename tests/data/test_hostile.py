"""Prepared data from someone else, or damaged: a DataError, whatever manifest and bytes say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from damaged import ROWS, SHARD, refit, use

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
        ('"schema_version": 8', '"schema_version": 1', "has schema version 1"),
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


def columns(folder: Path) -> dict[str, Any]:
    table = pa.ipc.open_file(str(folder / SHARD)).read_all().combine_chunks()
    return {name: table[name].chunk(0) for name in table.schema.names}


def write(folder: Path, changed: dict[str, Any], **options: Any) -> None:
    batch = pa.record_batch(changed)
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_file(str(folder / SHARD), batch.schema, options=written) as writer:
        writer.write_batch(batch)
    refit(folder, batch.num_rows)


def column_of(values: list[Any], kind: Any) -> Callable[[Any], Any]:
    return lambda column: pa.array([*values, *column.to_pylist()[len(values) :]], kind)


INT_LISTS, TEXT_LISTS = pa.list_(pa.int32()), pa.list_(pa.string())


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("tokens_0", column_of([], pa.list_(pa.int64())), "other columns"),
        ("example_id", lambda column: column.dictionary_encode(), "other columns"),
        ("tokens_0", column_of([[2, 9]], INT_LISTS), "unknown values of tokens_0"),
        ("tokens_0", column_of([[2, -1]], INT_LISTS), "unknown values of tokens_0"),
        ("tokens_0", column_of([[2, None]], INT_LISTS), "lacks values in column tokens_0"),
        ("tokens_0", column_of([[]], INT_LISTS), "other lengths"),
        ("tokens_0", column_of([[2] * 7], INT_LISTS), "other lengths"),
        ("words_0", column_of([["a"]], TEXT_LISTS), "not have one of words_0 for each token"),
        ("rationale_0", column_of([[1]], pa.list_(pa.uint8())), "not have one of rationale_0"),
        ("label", column_of([2], pa.int32()), "unknown values of label"),
        ("label", column_of([-1], pa.int32()), "unknown values of label"),
    ],
)
def test_what_a_shard_may_not_hold(
    folder: Path, name: str, change: Callable[[Any], Any], message: str
) -> None:
    held = columns(folder)
    write(folder, {**held, name: change(held[name])})
    with pytest.raises(DataError, match=message) as error:
        use(folder)
    assert error.value.where == str(folder / SHARD)


def test_offsets_out_of_range_are_refused(folder: Path) -> None:
    path = folder / SHARD
    content = path.read_bytes()
    offsets = columns(folder)["tokens_0"].offsets.to_numpy().astype("<i4")
    place = content.index(offsets.tobytes())
    for bad in ([0, 10**9], [0, -5], [9, 3], [-1, 2]):
        changed = np.concatenate([np.array(bad, "<i4"), offsets[2:]]).tobytes()
        path.write_bytes(content[:place] + changed + content[place + len(changed) :])
        with pytest.raises(DataError):
            use(folder)
    last = np.concatenate([offsets[:-1], np.array([2**31 - 1], "<i4")]).tobytes()
    path.write_bytes(content[:place] + last + content[place + len(last) :])
    with pytest.raises(DataError):
        use(folder)
