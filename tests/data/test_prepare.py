"""Preparing: what is stored is what was read, in bounded memory, and never half-made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.data.manifest import Manifest
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, SourceRequest, named_source
from rss_rl.data.store import open_prepared
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SENTENCE = st.one_of(
    st.lists(WORDS, min_size=1, max_size=6).map(tuple),
    st.text("abcde .,!'", min_size=1, max_size=30).filter(str.strip),
)


@given(
    st.lists(st.tuples(SENTENCE, SENTENCE, st.sampled_from("xyz")), min_size=2, max_size=9),
    st.booleans(),
)
def test_words_come_back_and_ids_name_them(
    tmp_path_factory: pytest.TempPathFactory,
    list_source: Callable[..., Any],
    rows: list[tuple[Any, Any, str]],
    lower: bool,
) -> None:
    raw = [RawExample(f"id{i}", (a, b), label) for i, (a, b, label) in enumerate(rows)]
    source = list_source({"train": raw, "test": raw[::-1]}, LabelSpec("classes", tuple("xyz")), 2)
    out = tmp_path_factory.mktemp("prepared") / "out"
    prepare(source, out, dim=3, lower=lower)
    prepared = open_prepared(out)
    for name, expected in (("train", raw), ("test", raw[::-1])):
        split = prepared.split(name)
        assert len(split) == len(expected)
        batch = split.batch(range(len(split)))
        for row, example in enumerate(expected):
            assert split.example_id(row) == example.id
            assert "xyz"[batch.labels[row]] == example.label
            for slot, text in enumerate(example.texts):
                words, keys = prepared.tokenizer(text)
                assert split.words(row)[slot] == words
                if isinstance(text, tuple):
                    assert words == text
                ids = batch.tokens[slot][row][batch.valid[slot][row]]
                seen = [prepared.vocabulary.words[i] for i in ids.tolist()]
                assert seen == ["<unk>" if k in ("<pad>", "<unk>") else k for k in keys]


def test_coverage_of_files_side_by_side(tmp_path: Path, list_source: Callable[..., Any]) -> None:
    rows = [RawExample("1", (("a", "a", "b"),), "x"), RawExample("2", (("c", "d"),), "y")]
    first, second = tmp_path / "v.txt", tmp_path / "w.txt"
    first.write_text("a 1\nb 1\n")
    second.write_text("b 1 2\nc 1 2\n")
    source = list_source({"train": rows})
    vectors = prepare(source, tmp_path / "out", vectors=[first, second]).vectors
    assert [(c.words, c.tokens) for c in vectors.coverage] == [(0.5, 0.6), (0.5, 0.4)]
    assert (vectors.any.words, vectors.any.tokens) == (0.75, 0.8)
    assert vectors.missing == ("d",)


def test_manifest_names_no_folder_and_has_checksums(tmp_path: Path, sick_folder: Path) -> None:
    source = named_source("sick-entailment", SourceRequest(sick_folder))
    manifest = prepare(source, tmp_path / "out", dim=4)
    assert [f.name for f in manifest.sources] == [
        "SICK_train.txt",
        "SICK_trial.txt",
        "SICK_test_annotated.txt",
    ]
    assert all(len(f.sha256) == 64 for f in manifest.sources)
    assert str(tmp_path) not in (tmp_path / "out" / "manifest.json").read_text()
    before = manifest.sources[0].sha256
    with (sick_folder / "SICK_train.txt").open("a") as stream:
        stream.write("99\tA fox\tA fox\t5\tENTAILMENT\n")
    assert prepare(source, tmp_path / "new", dim=4).sources[0].sha256 != before


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_input_same_bytes_and_another_seed_other_vectors(
    tmp_path: Path, sick_folder: Path
) -> None:
    source = named_source("sick-entailment", SourceRequest(sick_folder))
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        prepare(source, tmp_path / name, dim=4, seed=seed)
    first, second, other = (contents(tmp_path / name) for name in "abc")
    assert first == second
    assert first["train-00000.arrow"] == other["train-00000.arrow"]
    assert first["vectors.safetensors"] != other["vectors.safetensors"]
    assert set(first) == {
        "manifest.json",
        "vocabulary.json",
        "vectors.safetensors",
        "train-00000.arrow",
        "dev-00000.arrow",
        "test-00000.arrow",
    }


def test_classes_are_named_by_the_training_rows(
    tmp_path: Path, list_source: Callable[..., Any]
) -> None:
    def rows(*labels: str) -> list[RawExample]:
        return [RawExample(str(i), ("text",), label) for i, label in enumerate(labels)]

    manifest = prepare(list_source({"train": rows("10", "2", "-1")}), tmp_path / "n", dim=2)
    assert manifest.labels.names == ("-1", "2", "10")
    manifest = prepare(list_source({"train": rows("b", "a", "10")}), tmp_path / "s", dim=2)
    assert manifest.labels.names == ("10", "a", "b")
    # 'dev' comes first, and its labels are still checked against those of training.
    late = {"dev": rows("a", "c"), "train": rows("b", "a")}
    with pytest.raises(DataError, match=r"row 0: unknown label 'c'.*The classes are: a, b"):
        prepare(list_source(late), tmp_path / "x", dim=2)


def test_out_is_replaced_only_when_asked_and_only_if_prepared(
    tmp_path: Path, sick_folder: Path
) -> None:
    source = named_source("sick-entailment", SourceRequest(sick_folder))
    out = tmp_path / "deep" / "out"
    prepare(source, out, dim=2)
    with pytest.raises(DataError, match=r"out: exists already.*--force"):
        prepare(source, out, dim=3)
    assert prepare(source, out, dim=3, force=True).vectors.dim == 3
    assert Manifest.load(out).vectors.dim == 3
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    precious = tmp_path / "home"
    precious.mkdir()
    (precious / "file").write_text("keep")
    with pytest.raises(DataError, match="is no prepared directory, and is not replaced"):
        prepare(source, precious, dim=2, force=True)
    assert (precious / "file").read_text() == "keep"


def test_a_failure_leaves_nothing_and_keeps_what_was(tmp_path: Path, sick_folder: Path) -> None:
    source = named_source("sick-entailment", SourceRequest(sick_folder))
    out = tmp_path / "out"
    prepare(source, out, dim=2)
    before = contents(out)
    with pytest.raises(DataError):
        prepare(source, out, vectors=[tmp_path / "none.txt"], force=True)
    assert contents(out) == before

    def interrupt(what: str, done: int, end: int | None) -> None:
        if what.startswith("writing test"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "new", dim=2, progress=interrupt)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "sick"]


def test_rationale_is_known_for_all_rows_of_a_split_or_none(
    tmp_path: Path, list_source: Callable[..., Any]
) -> None:
    bits = RawExample("1", (("a", "b"),), "x", ((True, False),), "f", 1)
    plain = RawExample("2", (("a",),), "y", None, "f", 2)
    with pytest.raises(DataError, match="f, row 2: some examples have 'rationale'"):
        prepare(list_source({"train": [bits, plain]}), tmp_path / "out", dim=2)
    wrong = RawExample("3", (("a", "b", "c"),), "y", ((True, False),), "f", 3)
    with pytest.raises(DataError, match="f, row 3: the rationale does not have one bit for each"):
        prepare(list_source({"train": [bits, wrong]}), tmp_path / "out", dim=2)
