"""Preparing a dataset: two streaming passes from a source to a prepared directory.

The first pass tokenises, checks and counts each split into a temporary Arrow file; then the
vocabulary is fixed and the vectors are read; the second pass turns words into ids. The directory is
built beside its final path and moved there when complete, so a partial one is never seen.

A prepared directory holds manifest.json, vocabulary.json, vectors.safetensors ("vectors", float32
[V, E]), the Arrow IPC files (shards) of each split, and rejects.jsonl where bad rows were skipped.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rss_rl.data.checks import MOST_WORDS, LabelChecker, Rejects
from rss_rl.data.label_weights import LabelWeights, learn_weights
from rss_rl.data.manifest import (
    MANIFEST_FILE,
    VOCABULARY_BYTES,
    VOCABULARY_FILE,
    Manifest,
    SourceFile,
    SplitInfo,
    TokenizerInfo,
    VectorInfo,
    VocabularyInfo,
    file_info,
)
from rss_rl.data.shard import split_schema, write_shards
from rss_rl.data.sources import Progress, Source
from rss_rl.data.staging import Stage, StagedSplit
from rss_rl.data.tokens import TOKENIZER_NAME, Tokenizer
from rss_rl.data.vectors import check_vectors, source_file, write_vectors
from rss_rl.data.vocabulary import Vocabulary
from rss_rl.durable import disk_errors, new_folder
from rss_rl.errors import DataError, StorageError
from rss_rl.seeding import generator
from rss_rl.types import Array, LabelSpec

_WEIGHED_ROWS, _WEIGHED_WORDS, _WEIGHED_LABELS = 50_000, 4_000_000, 2_000_000
"""Rows, drawn at random, their words, and their labels in one-hot form, that label weights are
learnt from: more take minutes."""
_MOST_DIM = 1 << 16


def prepare(
    source: Source,
    out: Path,
    *,
    vectors: Sequence[Path] = (),
    dim: int = 100,
    label_weights: bool = False,
    lower: bool = True,
    skip_bad_rows: bool = False,
    force: bool = False,
    seed: int = 0,
    max_words: int | None = None,
    progress: Progress = lambda what, done, end: None,
) -> Manifest:
    """Prepare `source` into the directory `out`.

    Args:
        source: where the examples come from.
        out: directory to make.
        vectors: files of word vectors, concatenated; none: random vectors of width `dim`.
        dim: width of random vectors.
        label_weights: add to each word's vector what it says about the labels in the training
            texts, see `rss_rl.data.label_weights`.
        lower: the vocabulary is uncased (given tokens stay as they are).
        skip_bad_rows: leave unusable rows out and list them in rejects.jsonl, rather than stop.
        force: replace a prepared directory.
        seed: of the random vectors of words that no file has.
        max_words: of a text; longer texts are cut, and counted.
        progress: see `Progress`.

    Raises:
        DataError: a source, row, vector file or setting that cannot be used, or `out` exists.
            Settings, vector files and `out` are checked before the first row is read.
        StorageError: the disk refuses; `out` is unchanged.
    """
    _check_settings(dim, max_words, source.labels, label_weights)
    for path in vectors:
        check_vectors(path, skip_bad_rows=skip_bad_rows)
    read = [path for paths in source.splits.values() for path in paths]
    sources = tuple(source_file(path) for path in dict.fromkeys(read))
    with _built_aside(out, force) as folder:
        rejects = Rejects(folder / "rejects.jsonl", skip_bad_rows)
        labels = LabelChecker(source.labels)
        stage = Stage(source, folder, Tokenizer(lower), labels, rejects, progress, max_words)
        staged = _stage(stage)
        vocabulary, counts = _vocabulary(staged)
        words = _save_vocabulary(folder / VOCABULARY_FILE, vocabulary)
        info = write_vectors(
            folder,
            vectors,
            vocabulary,
            counts,
            rejects,
            progress,
            dim=dim,
            seed=seed,
            weights=_label_weights(staged["train"], labels.spec, vocabulary, progress)
            if label_weights
            else None,
        )
        splits = {}
        for split, part in staged.items():
            progress(f"writing {split}", 0, part.rows)
            splits[split] = _write_split(stage, split, part, vocabulary)
            progress(f"writing {split}", part.rows, part.rows)
            part.path.unlink()
        manifest = _manifest(stage, sources, splits, words, info, seed)
        manifest.save(folder)
    return manifest


def _check_settings(
    dim: int, max_words: int | None, labels: LabelSpec | None, label_weights: bool
) -> None:
    if not 1 <= dim <= _MOST_DIM:
        raise DataError(f"dim is {dim}", remedy=f"Give a width of 1 to {_MOST_DIM} as --dim")
    if max_words is not None and not 1 <= max_words <= MOST_WORDS:
        remedy = f"Give 1 to {MOST_WORDS:,} as --max-words"
        raise DataError(f"max_words is {max_words}", remedy=remedy)
    if labels is not None and labels.chooses and (max_words is not None or label_weights):
        raise DataError(
            f"labels choose a {labels.kind} of the text, which a cut may remove and no word is for",
            remedy="Leave --max-words and --label-weights out",
        )


@contextmanager
def _built_aside(out: Path, force: bool) -> Iterator[Path]:
    """A new directory beside `out`, which it replaces unless the block raises."""
    target = Path(os.path.abspath(out))  # has a name even if `out` is '.'
    remedy = "Name an --out on a disk with space, where you may write"
    with disk_errors(out, "cannot be written", remedy, StorageError):
        _check_free(out, target, force)
        with new_folder(target) as folder:
            yield folder
            _check_free(out, target, force)  # another process may have been faster


def _check_free(out: Path, target: Path, force: bool) -> None:
    if target.exists() and not (target / MANIFEST_FILE).is_file():
        raise DataError(
            "is no prepared directory, and is not replaced",
            where=str(out),
            remedy="Name another --out",
        )
    if target.exists() and not force:
        raise DataError("exists already", where=str(out), remedy="Replace it with --force")


def _stage(stage: Stage) -> dict[str, StagedSplit]:
    splits, name = stage.source.splits, stage.source.name
    if "train" not in splits:
        raise DataError("there is no 'train' split", where=name)
    staged: dict[str, StagedSplit] = {}
    learnt = np.zeros(1, np.uint64)
    for split in sorted(splits, key=lambda name: name != "train"):  # train first: it names classes
        part = staged[split] = stage.run(split)
        keys, part.keys = np.asarray(part.keys), array("Q")
        texts = np.unique(keys)
        part.texts = len(texts)
        if split == "train":
            learnt = texts
            stage.labels.end_of_training(", ".join(map(str, splits[split])) or name)
        else:  # `np.isin` takes several times the memory
            part.in_train = int((learnt[np.searchsorted(learnt[:-1], keys)] == keys).sum())
    return staged


def _vocabulary(staged: dict[str, StagedSplit]) -> tuple[Vocabulary, Counter[str]]:
    train = staged["train"].counts
    others: Counter[str] = Counter()
    for split, part in staged.items():
        if split != "train":
            others.update(part.counts)
    return Vocabulary.count(train, others), train + others


def _label_weights(
    train: StagedSplit, labels: LabelSpec, vocabulary: Vocabulary, progress: Progress
) -> LabelWeights:
    """See `learn_weights`; the texts of a pair count as one."""

    def rows() -> Iterator[tuple[Array, Any]]:
        for block in train.blocks():
            slots = [block[f"tokens_{slot}"].to_pylist() for slot in range(len(train.tokens))]
            labels = block["label"].to_pylist()
            for texts, label in zip(zip(*slots, strict=True), labels, strict=True):
                yield vocabulary.ids(chain(*texts)), label

    rows_most = min(_WEIGHED_ROWS, _WEIGHED_LABELS / max(1, len(labels.names)))
    share = min(rows_most / max(1, train.rows), _WEIGHED_WORDS / max(1, sum(train.tokens)))
    if share >= 1:
        return learn_weights(rows(), vocabulary, progress)
    # Drawn, as rows may come in turns of their labels.
    draw = generator(0, "label weights")
    return learn_weights((row for row in rows() if draw.random() < share), vocabulary, progress)


def _save_vocabulary(path: Path, vocabulary: Vocabulary) -> VocabularyInfo:
    vocabulary.save(path)
    info = file_info(path)
    if info["bytes"] > VOCABULARY_BYTES:
        raise DataError(
            f"the {len(vocabulary)} different words take {info['bytes']} bytes, more than can be"
            " read",
            remedy="Check that the text columns hold words",
        )
    return VocabularyInfo(size=len(vocabulary), trainable=vocabulary.trainable, **info)


def _write_split(
    stage: Stage, split: str, staged: StagedSplit, vocabulary: Vocabulary
) -> SplitInfo:
    """Second pass: words become ids, labels class indices."""
    labels, slots = stage.labels.spec, range(stage.source.sentences)
    schema = split_schema(len(slots), labels, staged.known)
    index = {name: i for i, name in enumerate(labels.names)}

    def batches() -> Iterator[Any]:
        for block in staged.blocks():
            columns = {name: block[name] for name in schema.names}
            for name in (f"tokens_{slot}" for slot in slots):
                ids = vocabulary.ids(columns[name].flatten().to_pylist()).astype(np.int32)
                columns[name] = pa.ListArray.from_arrays(columns[name].offsets, pa.array(ids))
            if labels.kind == "classes":
                classes = [index[name] for name in columns["label"].to_pylist()]
                columns["label"] = pa.array(classes, pa.int32())
            cast = [columns[field.name].cast(field.type) for field in schema]
            yield pa.record_batch(cast, schema=schema)

    return SplitInfo(
        rows=staged.rows,
        texts=staged.texts,
        known=staged.known,
        tokens=tuple(staged.tokens),
        longest=tuple(staged.longest),
        length_sd=staged.length_sd(),
        bad_rows=stage.rejects.bad[split],
        dropped_rows=stage.rejects.dropped[split],
        cut_rows=staged.cut,
        in_train=staged.in_train,
        shards=tuple(write_shards(stage.folder, split, schema, batches())),
    )


def _manifest(
    stage: Stage,
    sources: tuple[SourceFile, ...],
    splits: dict[str, SplitInfo],
    vocabulary: VocabularyInfo,
    vectors: VectorInfo,
    seed: int,
) -> Manifest:
    return Manifest(
        name=stage.source.name,
        labels=stage.labels.spec,
        sentences=stage.source.sentences,
        splits=splits,
        sources=sources,
        tokenizer=TokenizerInfo(name=TOKENIZER_NAME, lower=stage.tokenizer.lower),
        vocabulary=vocabulary,
        vectors=vectors,
        seed=seed,
        max_words=stage.max_words,
        columns=stage.source.columns,
    )
