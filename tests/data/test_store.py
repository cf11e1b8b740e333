"""Reading prepared data: views of the map, right batches, clear errors on damaged files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged import refit
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.data import shard, staging
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, Source
from rss_rl.data.store import OPEN_SHARDS, Prepared, Split, open_prepared
from rss_rl.errors import DataError
from rss_rl.types import Array, ExampleSource, LabelSpec

ROWS = 41
SHARD = "train-00000.arrow"


def raw_examples() -> list[RawExample]:
    draw = np.random.default_rng(0)
    examples = []
    for i in range(ROWS):
        texts = tuple(
            tuple(f"w{draw.integers(30)}" for _ in range(draw.integers(1, 12))) for _ in range(2)
        )
        bits = tuple(tuple(bool(draw.integers(2)) for _ in text) for text in texts)
        examples.append(RawExample(f"e{i}", texts, float(draw.uniform(0, 3)), bits))
    return examples


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return open_prepared(prepare_into(tmp_path_factory.mktemp("store") / "out"))


def _read(split: str) -> Any:
    return iter(raw_examples())


_SOURCE = Source("made", 2, LabelSpec("score", low=0, high=3), {"train": ()}, _read)


def prepare_into(out: Path) -> Path:
    prepare(_SOURCE, out, dim=3)
    return out


@pytest.fixture(scope="module")
def split(prepared: Prepared) -> Split:
    return prepared.split("train")


def padded_twin(rows: list[list[int]]) -> Array:
    longest = max((len(row) for row in rows), default=0)
    return np.array([row + [0] * (longest - len(row)) for row in rows]).reshape(len(rows), longest)


@given(st.lists(st.integers(0, ROWS - 1), max_size=20))
def test_batch_equals_its_twin(prepared: Prepared, split: Split, rows: list[int]) -> None:
    raw = raw_examples()
    batch = split.batch(rows)
    assert batch.rows.tolist() == rows
    assert batch.rows.dtype == np.int64
    np.testing.assert_array_equal(batch.labels, np.array([raw[r].label for r in rows], np.float32))
    assert batch.labels.dtype == np.float32
    assert batch.rationale is not None
    for slot in range(2):
        words = [raw[r].texts[slot] for r in rows]
        ids = padded_twin([prepared.vocabulary.ids(w).tolist() for w in words])
        np.testing.assert_array_equal(batch.tokens[slot], ids)
        assert batch.tokens[slot].dtype == np.int64
        np.testing.assert_array_equal(batch.valid[slot], padded_twin([[1] * len(w) for w in words]))
        assert batch.valid[slot].dtype == bool
        bits = [[int(b) for b in (raw[r].rationale or ())[slot]] for r in rows]
        np.testing.assert_array_equal(batch.rationale[slot], padded_twin(bits))


def test_split_is_an_example_source(split: Split) -> None:
    source: ExampleSource = split
    assert len(source) == ROWS
    assert source.sentences == 2
    assert source.labels == LabelSpec("score", low=0, high=3)
    expected = [[len(text) for text in example.texts] for example in raw_examples()]
    assert source.lengths().tolist() == expected
    assert source.lengths().dtype == np.int64
    assert [split.words(r) for r in range(ROWS)] == [e.texts for e in raw_examples()]
    assert [split.example_id(r) for r in range(ROWS)] == [e.id for e in raw_examples()]


def test_split_pickles_as_its_path(split: Split) -> None:
    dumped = pickle.dumps(split)
    assert len(dumped) < 5000
    again = pickle.loads(dumped)
    np.testing.assert_array_equal(again.batch([5, 3]).tokens[0], split.batch([5, 3]).tokens[0])


def test_many_shards_read_like_one(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "BLOCK_ROWS", 2)
    monkeypatch.setattr(shard, "SHARD_BYTES", 1)
    prepare(_SOURCE, tmp_path / "out", dim=3)
    many = open_prepared(tmp_path / "out").split("train")
    assert len(many.shard_rows) > 2 * OPEN_SHARDS
    assert sum(many.shard_rows) == len(many) == ROWS
    for rows in (range(ROWS), [40, 0, 17, 17, 3], np.random.default_rng(0).permutation(ROWS)):
        one, other = split.batch(rows), many.batch(rows)
        for name in ("rows", "labels"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
        for name in ("tokens", "valid", "rationale"):
            for mine, theirs in zip(getattr(other, name), getattr(one, name), strict=True):
                np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(many.lengths(rows), split.lengths()[np.array(rows)])
        assert many._shard.cache_info().currsize == OPEN_SHARDS
    assert [many.words(row) for row in range(ROWS)] == [split.words(row) for row in range(ROWS)]
    assert many.example_id(33) == "e33"


def test_unknown_split_names_the_nearest(prepared: Prepared) -> None:
    with pytest.raises(DataError, match=r"no split 'tran'; did you mean 'train'\?"):
        prepared.split("tran")


def test_a_lost_shard_is_an_error_at_its_first_use(tmp_path: Path) -> None:
    folder = prepare_into(tmp_path / "out")
    (folder / SHARD).unlink()
    split = open_prepared(folder).split("train")
    with pytest.raises(DataError) as error:
        split.lengths([3])
    assert error.value.where == str(folder / SHARD)
    assert "prepare the data again" in error.value.remedy


def test_damaged_vectors_are_an_error(tmp_path: Path) -> None:
    folder = prepare_into(tmp_path / "out")
    path = folder / "vectors.safetensors"
    content = path.read_bytes()
    for damaged, message in (
        (content[:-4], f"has {len(content) - 4} bytes, the manifest says {len(content)}"),
        (b"\x00" * len(content), "cannot be read"),
        (content.replace(b'"F32"', b'"I32"'), "does not hold finite float32 numbers"),
    ):
        path.write_bytes(damaged)
        if len(damaged) == len(content):
            refit(folder)
        with pytest.raises(DataError, match=rf"vectors\.safetensors: {message}"):
            open_prepared(folder).vectors()
    path.write_bytes(content)
    refit(folder)
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"dim": 3', '"dim": 4'))
    with pytest.raises(DataError, match=r"numbers of shape \(\d+, 4\)"):
        open_prepared(folder).vectors()
