"""Preparing a dataset: two streaming passes from a source to a prepared directory.

The first pass tokenises, checks and counts each split into a temporary Arrow file; then the
vocabulary is fixed and the vectors are read; the second pass turns words into ids. The directory is
built beside its final path and moved there when complete, so a partial one is never seen.

A prepared directory holds manifest.json, vocabulary.json, vectors.safetensors ("vectors", float32
[V, E]), the Arrow IPC files (shards) of each split, and rejects.jsonl where bad rows were skipped.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rss_rl.data import manifest as records
from rss_rl.data.checks import LabelChecker, Rejects
from rss_rl.data.manifest import (
    LongText,
    Manifest,
    ShardInfo,
    SourceFile,
    SplitInfo,
    TokenizerInfo,
    VectorInfo,
    VocabularyInfo,
)
from rss_rl.data.shard import ShardWriter, shard_schema
from rss_rl.data.sources import Source
from rss_rl.data.staging import (
    BLOCK_ROWS,
    Limit,
    Progress,
    Stage,
    StagedSplit,
    TooLong,
    staged_blocks,
)
from rss_rl.data.tokens import TOKENIZER_NAME, Tokenizer
from rss_rl.data.vector_files import check_vectors, file_on_disk
from rss_rl.data.vectors import source_file, write_vectors
from rss_rl.data.vocabulary import Vocabulary
from rss_rl.durable import disk_errors, file_sha256, put_back, swap_in
from rss_rl.errors import DataError, StorageError
from rss_rl.types import Array

SHARD_MB = 64
_FEW_WORDS, _LONG_WORD = 2.5, 10
"""Words per text, and characters per word, from which words are taken for uncut sentences."""
_WEIGHED_ROWS = 100_000
"""Most rows, evenly spread, that label weights are learnt from: more take minutes and memory."""
_log = logging.getLogger("rss_rl.data")
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
    batch_rows: int = BLOCK_ROWS,
    shard_mb: float = SHARD_MB,
    max_words: int | None = None,
    too_long: TooLong = "cut",
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
        batch_rows: most rows of a record batch.
        shard_mb: most megabytes of a shard, unless a single record batch has more.
        max_words: of a text; longer texts are cut, or their rows left out, as `too_long` says.
            Both are counted.
        progress: see `Progress`.

    Raises:
        DataError: a source, row, vector file or setting that cannot be used, or `out` exists.
            Settings, vector files and `out` are checked before the first row is read.
        StorageError: the disk refuses; `out` is unchanged.
    """
    _check_settings(dim, shard_mb)
    limit = Limit(max_words, too_long)
    labels = source.labels
    limit.check(labels)
    if label_weights and labels is not None and labels.kind not in ("classes", "score"):
        raise DataError(
            "label weights are of classes or scores",
            where=source.name,
            remedy="Leave --label-weights out",
        )
    for path in vectors:
        check_vectors(path, skip_bad_rows=skip_bad_rows)
    read = [path for paths in source.splits.values() for path in paths]
    _check_apart(out, [*read, *map(file_on_disk, vectors)])
    sources = tuple(source_file(path) for path in dict.fromkeys(read))
    with _built_aside(out, force) as folder:
        stage = Stage(
            source,
            folder,
            Tokenizer(lower),
            LabelChecker(source.labels),
            Rejects(folder / "rejects.jsonl", skip_bad_rows),
            progress,
            batch_rows,
            limit,
        )
        staged = _stage(stage)
        _check_unchanged(sources, dict.fromkeys(read))
        _warn_of_uncut(staged["train"], source.name)
        vocabulary, counts = _vocabulary(staged)
        words = _save_vocabulary(folder / records.VOCABULARY_FILE, vocabulary)
        info = write_vectors(
            folder,
            vectors,
            vocabulary,
            counts,
            stage.rejects,
            progress,
            dim=dim,
            seed=seed,
            weights=_label_weights(staged["train"], vocabulary) if label_weights else None,
        )
        shards = {}
        for split, part in staged.items():
            progress(f"writing {split}", 0, part.rows)
            shards[split] = _write_split(stage, split, part, vocabulary, int(shard_mb * 1e6))
            progress(f"writing {split}", part.rows, part.rows)
            part.path.unlink()
        manifest = _manifest(stage, sources, staged, shards, words, info, seed)
        manifest.save(folder)
    return manifest


def _check_settings(dim: int, shard_mb: float) -> None:
    if not 1 <= dim <= _MOST_DIM:
        raise DataError(f"dim is {dim}", remedy=f"Give a width of 1 to {_MOST_DIM} as --dim")
    if not 0 < shard_mb < math.inf:
        raise DataError(f"shard_mb is {shard_mb}", remedy=f"Give megabytes, such as {SHARD_MB}")


def _check_apart(out: Path, files: Sequence[Path]) -> None:
    """Raise if an input file is in the directory that would be replaced."""
    for path in files:
        if out.resolve() in path.resolve().parents:
            raise DataError(
                f"lies in the directory that would be replaced, {out}",
                where=str(path),
                remedy="Move the file, or name another --out",
            )


def _check_unchanged(before: Iterable[SourceFile], files: Iterable[Path]) -> None:
    """Raise if a source is no longer what it was before it was read."""
    for known, path in zip(before, files, strict=True):
        if source_file(path) != known:
            raise DataError(
                "changed while it was read",
                where=str(path),
                remedy="Prepare it again when it is complete",
            )


@contextmanager
def _built_aside(out: Path, force: bool) -> Iterator[Path]:
    """A new directory beside `out`, which it replaces unless the block raises."""
    target = Path(os.path.abspath(out))  # has a name even if `out` is '.'
    folder: Path | None = None
    remedy = "Name an --out on a disk with space, where you may write"
    try:
        with disk_errors(out, "cannot be written", remedy, StorageError):
            _check_free(out, target, force)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
            yield folder
            folder.chmod(0o777 & ~_umask())
            _check_free(out, target, force)  # another process may have been faster
            swap_in(folder, target)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _check_free(out: Path, target: Path, force: bool) -> None:
    if target.name:
        put_back(target)
    if target.exists() and not (target / records.MANIFEST_FILE).is_file():
        raise DataError(
            "is no prepared directory, and is not replaced",
            where=str(out),
            remedy="Name another --out",
        )
    if target.exists() and not force:
        raise DataError("exists already", where=str(out), remedy="Replace it with --force")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _stage(stage: Stage) -> dict[str, StagedSplit]:
    splits, name = stage.source.splits, stage.source.name
    if "train" not in splits:
        raise DataError("there is no 'train' split", where=name)
    staged: dict[str, StagedSplit] = {}
    for split in sorted(splits, key=lambda name: name != "train"):  # train first: it names classes
        staged[split] = stage.run(split)
        if split == "train":
            stage.labels.end_of_training(", ".join(map(str, splits[split])) or name)
    return staged


def _warn_of_uncut(train: StagedSplit, name: str) -> None:
    """Warn of texts that look as if they had no spaces between words, as in Chinese or Thai."""
    words = train.counts.total()
    characters = sum(len(word) * count for word, count in train.counts.items())
    if words <= _FEW_WORDS * train.rows and characters >= _LONG_WORD * words > 0:
        _log.warning(
            "%s: texts have %.1f words of %.0f characters on average. Words are found by spaces:"
            " cut Chinese, Thai or Japanese before, into a column with lists of words",
            name,
            words / train.rows,
            characters / words,
        )


def _vocabulary(staged: dict[str, StagedSplit]) -> tuple[Vocabulary, Counter[str]]:
    train = staged["train"].counts
    others: Counter[str] = Counter()
    for split, part in staged.items():
        if split != "train":
            others.update(part.counts)
    return Vocabulary.count(train, others), train + others


def _label_weights(train: StagedSplit, vocabulary: Vocabulary) -> Array:
    """Weights float32 [V, C], see `weigh_words`; the texts of a pair count as one."""
    from rss_rl.data.label_weights import weigh_words  # scikit-learn takes a second to import

    def rows() -> Iterator[tuple[Array, Any]]:
        for block in staged_blocks(train):
            slots = [block[f"keys_{slot}"].to_pylist() for slot in range(len(train.tokens))]
            labels = block["label"].to_pylist()
            for texts, label in zip(zip(*slots, strict=True), labels, strict=True):
                yield vocabulary.ids(chain(*texts)), label

    return weigh_words(islice(rows(), 0, None, -(-train.rows // _WEIGHED_ROWS)), len(vocabulary))


def _save_vocabulary(path: Path, vocabulary: Vocabulary) -> VocabularyInfo:
    vocabulary.save(path)
    size = path.stat().st_size
    if size > records.VOCABULARY_BYTES:
        raise DataError(
            f"the {len(vocabulary)} different words take {size} bytes, more than can be read",
            remedy="Check that the text columns hold words",
        )
    return VocabularyInfo(
        size=len(vocabulary),
        trainable=vocabulary.trainable,
        bytes=size,
        sha256=file_sha256(path),
    )


def _write_split(
    stage: Stage, split: str, staged: StagedSplit, vocabulary: Vocabulary, shard_bytes: int
) -> tuple[ShardInfo, ...]:
    """Second pass: words become ids, labels class indices."""
    labels, slots = stage.labels.spec, range(len(staged.tokens))
    schema = shard_schema(len(slots), labels, staged.known)
    writer = ShardWriter(stage.folder, split, schema, shard_bytes)
    index = {name: i for i, name in enumerate(labels.names)}
    for block in staged_blocks(staged):
        columns = {"example_id": block["example_id"]}
        for slot in slots:
            keys = block[f"keys_{slot}"]
            ids = pa.array(vocabulary.ids(keys.flatten().to_pylist()).astype(np.int32))
            columns[f"tokens_{slot}"] = pa.ListArray.from_arrays(keys.offsets, ids)
            columns[f"words_{slot}"] = block[f"words_{slot}"]
        if labels.kind == "classes":
            classes = [index[name] for name in block["label"].to_pylist()]
            columns["label"] = pa.array(classes, pa.int32())
        else:
            columns["label"] = block["label"].cast(schema.field("label").type)
        for name in schema.names:
            if name not in columns:  # as it was staged
                columns[name] = block[name]
        writer.write(pa.record_batch(columns, schema=schema))
    return writer.close()


def _manifest(
    stage: Stage,
    sources: tuple[SourceFile, ...],
    staged: dict[str, StagedSplit],
    shards: dict[str, tuple[ShardInfo, ...]],
    vocabulary: VocabularyInfo,
    vectors: VectorInfo,
    seed: int,
) -> Manifest:
    source = stage.source
    return Manifest(
        schema_version=records.SCHEMA_VERSION,
        name=source.name,
        labels=stage.labels.spec,
        sentences=source.sentences,
        splits={
            split: SplitInfo(
                rows=part.rows,
                **{name: name in part.known for name in records.KNOWN},
                tokens=tuple(part.tokens),
                longest=tuple(part.longest),
                bad_rows=stage.rejects.bad[split],
                dropped_rows=stage.rejects.dropped[split],
                cut_rows=part.cut,
                long_rows=part.too_long,
                longest_texts=tuple(
                    LongText(id=id_, words=words)
                    for words, _, id_ in sorted(part.longest_texts, reverse=True)
                ),
                shards=shards[split],
                length_sd=part.length_sd(),
            )
            for split, part in staged.items()
        },
        sources=sources,
        tokenizer=TokenizerInfo(name=TOKENIZER_NAME, lower=stage.tokenizer.lower),
        vocabulary=vocabulary,
        vectors=vectors,
        seed=seed,
        max_words=stage.limit.words,
    )
