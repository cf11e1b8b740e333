"""Prepared data from someone else, or damaged: a DataError, whatever the bytes say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rss_rl.data.manifest import MANIFEST_BYTES, VOCABULARY_BYTES
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.data.store import open_prepared
from rss_rl.errors import DataError

ROWS = 24
SHARD = "train-00000.arrow"
POOL_BYTES = 4 * 2**20
"""Far more than reading the small files takes, far less than what hostile ones ask for."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, list_source: Callable[..., Any]) -> Path:
    rows = []
    for i in range(ROWS):
        text = tuple(f"word{n % 7}" for n in range(i, i + 2 + i % 5))
        bits = tuple(n % 2 == 0 for n in range(len(text)))
        rows.append(RawExample(f"id{i}", (text,), "ab"[i % 2], (bits,)))
    out = tmp_path_factory.mktemp("hostile") / "out"
    prepare(list_source({"train": rows}), out, dim=2, batch_rows=9)
    return out


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    target = tmp_path / "copy"
    copy(original, target)
    return target


def copy(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())


def use(folder: Path) -> None:
    """Read everything that can be read, in bounded memory."""
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    highest = pool.max_memory()
    try:
        prepared = open_prepared(folder)
        _ = prepared.vocabulary.words, prepared.vectors().max()
        split = prepared.split("train")
        lengths = split.lengths()
        batch = split.batch(range(len(split)))
        assert batch.valid[0].sum(axis=1).tolist() == lengths[:, 0].tolist()
        assert batch.tokens[0].max() < len(prepared.vocabulary)
        _ = [(split.words(row), split.example_id(row).encode()) for row in range(len(split))]
        _ = [prepared.labels.names[label] for label in batch.labels]
    finally:
        # Arrow's only number is the highest ever: earlier tests may have been higher.
        assert pool.max_memory() <= max(highest, before + POOL_BYTES)


def refit(folder: Path, rows: int | None = None) -> None:
    """Let the manifest agree with the size of the first shard, so that its content is looked at."""
    path = folder / "manifest.json"
    tree = json.loads(path.read_text())
    split = tree["splits"]["train"]
    split["shards"][0]["bytes"] = (folder / SHARD).stat().st_size
    if rows is not None:
        split["rows"] = split["shards"][0]["rows"] = rows
    path.write_text(json.dumps(tree))


def test_the_original_is_read(folder: Path) -> None:
    refit(folder)
    use(folder)


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
    folder: Path, original: Path, data: st.DataObject
) -> None:
    tree = json.loads((original / "manifest.json").read_text())
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
        (f'"{SHARD}"', '"../train-00000.arrow"', "must be named train-00000.arrow"),
        (f'"{SHARD}"', '"other.arrow"', "must be named train-00000.arrow"),
        ('"train":', '"../train":', "should match pattern"),
        (f'"rows": {ROWS}', f'"rows": {10**30}', "less than"),
        (f'"rows": {ROWS}', f'"rows": {ROWS + 1}', "has 24 rows, the manifest says 25"),
        ('"sentences": 1', '"sentences": 1000000', "less than or equal to 2"),
        ('"sentences": 1', '"sentences": 2', "has not 2 sentence slot"),
        ('"schema_version": 2', '"schema_version": 1', "has schema version 1"),
        ('"names": [', '"names": [], "x": [', "Unexpected keyword|there is no class"),
        ('"low": 0.0', '"low": NaN', "no range of scores"),
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


@pytest.mark.parametrize("name", ["manifest.json", "vocabulary.json"])
@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe{", b"", b"null", b'"text"', b"{}"])
def test_json_that_is_none_of_ours(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    if name == "vocabulary.json":
        fit_vocabulary(folder)
    with pytest.raises(DataError, match=name):
        use(folder)


def fit_vocabulary(folder: Path) -> None:
    path = folder / "manifest.json"
    tree = json.loads(path.read_text())
    tree["vocabulary"]["bytes"] = max(1, (folder / "vocabulary.json").stat().st_size)
    path.write_text(json.dumps(tree))


@pytest.mark.parametrize("bad", [3, None, ["a"], "\ud800"])
def test_a_vocabulary_holds_words(folder: Path, bad: object) -> None:
    path = folder / "vocabulary.json"
    words = json.loads(path.read_text())
    path.write_text(json.dumps([*words[:-1], bad]))
    fit_vocabulary(folder)
    with pytest.raises(DataError, match=r"vocabulary\.json: does not hold the 9 words"):
        use(folder)
    path.write_text(json.dumps(words[::-1]))
    fit_vocabulary(folder)
    with pytest.raises(DataError, match=r"vocabulary\.json: does not hold the 9 words"):
        use(folder)


def test_json_beyond_all_measure_is_refused_unread(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "vocabulary.json"
    with path.open("r+b") as stream:
        stream.truncate(VOCABULARY_BYTES + 1)  # a hole: no disk is used
    fit_vocabulary(folder)
    with pytest.raises(DataError, match=r"vocabulary\.bytes: Input should be less than"):
        use(folder)
    with (folder / "manifest.json").open("r+b") as stream:
        stream.truncate(100 * MANIFEST_BYTES)
    monkeypatch.setattr("pydantic.BaseModel.model_validate_json", None)
    with pytest.raises(DataError, match=f"has more than {MANIFEST_BYTES} bytes"):
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
        ("tokens_0", column_of([], pa.large_list(pa.int32())), "other columns"),
        ("words_0", column_of([], pa.list_(pa.binary())), "other columns"),
        ("words_0", column_of([], pa.list_(pa.dictionary(pa.int32(), pa.string()))), "other col"),
        ("label", column_of([], pa.float32()), "other columns"),
        ("example_id", lambda column: column.dictionary_encode(), "other columns"),
        ("tokens_0", column_of([[2, 9]], INT_LISTS), "unknown token ids"),
        ("tokens_0", column_of([[2, -1]], INT_LISTS), "unknown token ids"),
        ("tokens_0", column_of([[2, None]], INT_LISTS), "lacks values in column tokens_0"),
        ("tokens_0", column_of([None], INT_LISTS), "lacks values in column tokens_0"),
        ("tokens_0", column_of([[]], INT_LISTS), "other lengths"),
        ("tokens_0", column_of([[2] * 7], INT_LISTS), "other lengths"),
        ("tokens_0", column_of([[2] * 3], INT_LISTS), "not one of words_0 for each token"),
        ("words_0", column_of([["a"]], TEXT_LISTS), "not one of words_0 for each token"),
        ("words_0", column_of([["a", None]], TEXT_LISTS), "lacks values in column words_0"),
        ("rationale_0", column_of([[True]], pa.list_(pa.bool_())), "not one of rationale_0"),
        ("label", column_of([2], pa.int32()), "unknown labels"),
        ("label", column_of([-1], pa.int32()), "unknown labels"),
        ("label", column_of([None], pa.int32()), "lacks values in column label"),
        ("example_id", column_of([None], pa.string()), "lacks values in column example_id"),
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


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_shards_are_refused_before_they_are_unpacked(folder: Path, codec: str) -> None:
    held = columns(folder)
    # Thirty megabytes of one letter, in a file of a few kilobytes.
    long = pa.array(["x" * (30 * 2**20)] + ["x"] * (ROWS - 1))
    write(folder, {**held, "example_id": long}, compression=codec)
    assert (folder / SHARD).stat().st_size < 200_000
    del long
    with pytest.raises(DataError, match="no plain record batch"):
        use(folder)


def test_offsets_out_of_range_are_refused(folder: Path) -> None:
    path = folder / SHARD
    content = path.read_bytes()
    offsets = columns(folder)["tokens_0"].offsets.to_numpy()[:10].astype("<i4")  # of block 0
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


@pytest.mark.parametrize("name", [SHARD, "vectors.safetensors"])
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([b"\xff", b"\0", b"\x7f", b"\x01", b"\x80"])),
        min_size=1,
        max_size=4,
    ),
    width=st.sampled_from([1, 1, 2, 4, 8]),
    keep=st.one_of(st.just(1.0), st.floats(0, 1)),
)
@example(changes=[(0.0, b"\0")], width=8, keep=0.0)
def test_any_damage_is_an_error_or_changes_a_value(
    folder: Path,
    original: Path,
    name: str,
    changes: list[tuple[float, bytes]],
    width: int,
    keep: float,
) -> None:
    content = bytearray((original / name).read_bytes())
    content = content[: int(len(content) * keep)]
    for place, byte in changes:
        start = int(place * max(0, len(content) - width))
        content[start : start + width] = byte * min(width, len(content) - start)
    copy(original, folder)
    (folder / name).write_bytes(bytes(content))
    tree = json.loads((folder / "manifest.json").read_text())
    entry = tree["splits"]["train"]["shards"][0] if name == SHARD else tree["vectors"]
    entry["bytes"] = max(1, len(content))
    (folder / "manifest.json").write_text(json.dumps(tree))
    try:
        use(folder)
    except DataError as error:
        assert error.where == str(folder / name)
