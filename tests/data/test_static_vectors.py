"""Subword vectors: the mean of a word's pieces, from a matrix and a tokenizer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from static_vectors import MATRIX, PIECES, save

from rss_rl.data.prepare import prepare
from rss_rl.data.pretrained_vectors import find_static, static_vectors
from rss_rl.data.sources import RawExample, Source
from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

SPECIAL = list(SPECIAL_WORDS)


def test_a_word_is_the_mean_of_its_pieces(tmp_path: Path) -> None:
    words = ["A", "abc", "bbcc", "ab", "xyz"]
    vocabulary = Vocabulary((*SPECIAL, *words), len(SPECIAL) + 2)
    vectors, found, rows = static_vectors(Path(f"static:{save(tmp_path)}"), vocabulary)
    assert rows == len(PIECES)
    assert found.tolist() == [False] * len(SPECIAL) + [True] * 4 + [False]
    cut = [[1], [5, 4], [2, 3, 4, 4], [5]]  # longer than the tokenizer's file would let it be
    wanted = [MATRIX[pieces].astype(np.float32).mean(0) for pieces in cut]
    np.testing.assert_array_equal(vectors[len(SPECIAL) : -1], wanted)
    assert not vectors[-1].any()


def _read(split: str) -> Iterator[RawExample]:
    rows = ((("a", "abc"), "no"), (("ab", "xyz"), "yes"))
    return (RawExample(str(i), (row,), label) for i, (row, label) in enumerate(rows))


_SOURCE = Source("made", 1, LabelSpec("classes", ("no", "yes")), {"train": ()}, _read)


def test_a_package_is_found_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "carries_vectors"
    save(package / "weights", name="own_tokenizer_config.json")
    (package / "weights" / "tokenizer_config.json").unlink()
    (package / "__init__.py").write_text("raise SystemExit('code was run')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = find_static(Path("static:carries_vectors"))
    assert found.matrix == package / "weights" / "m.safetensors"
    assert found.tensor == "embeddings"
    assert "carries_vectors" not in sys.modules


def test_refused_before_a_row_is_read(tmp_path: Path) -> None:
    def error(named: str | Path) -> str:
        with pytest.raises(DataError) as caught:
            prepare(_SOURCE, tmp_path / "out", vectors=[Path(f"static:{named}")])
        assert not (tmp_path / "out").exists()
        return str(caught.value)

    assert "no such folder or installed package" in error("no_such_package")
    assert "no such folder or installed package" in error("../nowhere")
    (tmp_path / "empty").mkdir()
    assert "has 0 matrices" in error(tmp_path / "empty")
    two = save(tmp_path / "two")
    save_file({"more": MATRIX}, two / "n.safetensors")
    assert "has 2 matrices" in error(two)
    none = save(tmp_path / "none")
    (none / "tokenizer.json").unlink()
    assert "and 0 tokenizers" in error(none)
    weighed = save(tmp_path / "weighed")
    save_file({"embeddings": MATRIX, "weights": np.ones(6)}, weighed / "m.safetensors")
    assert "has 0 matrices" in error(weighed)
    whole = save(tmp_path / "whole", MATRIX.astype(np.int8))
    assert "has 0 matrices" in error(whole)
    broken = save(tmp_path / "broken")
    (broken / "m.safetensors").write_bytes(b"x" * 20)
    assert "cannot be read" in error(broken)


@pytest.mark.parametrize("matrix", [MATRIX[:4], MATRIX * np.float16("nan")])
def test_a_matrix_that_does_not_fit(tmp_path: Path, matrix: np.ndarray) -> None:
    named = Path(f"static:{save(tmp_path / 'model', matrix)}")
    with pytest.raises(DataError, match="finite rows"):
        prepare(_SOURCE, tmp_path / "out", vectors=[named])
