"""What the fuzzing campaign calls: parsers of bytes, commands that read a file, whole directories.

Each has sound inputs, a way to damage one and a call that must read it or refuse it. Damage is
bytes flipped, cut, doubled and spliced, and pieces that have been trouble elsewhere (signs of other
formats, numbers at the ends of their ranges, quotes, escapes). Checksums alone would refuse nearly
all of it, so half of the directories get those of their damaged content.
"""

from __future__ import annotations

__all__ = ["KINDS", "Target", "damaged_bytes", "damaged_files"]

import functools
import hashlib
import io
import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from damaged import SHARD, copy_files, refit, use
from golden import GOLDEN, TEXTS
from safetensors.numpy import save

import rss_rl
from rss_rl.config import load_config, with_overrides
from rss_rl.config.loading import parse_config
from rss_rl.data.manifest import Manifest
from rss_rl.data.records import column_names, column_types, read_records
from rss_rl.data.store import open_prepared
from rss_rl.data.vector_files import check_vectors, vector_lines
from rss_rl.data.vocabulary import Vocabulary
from rss_rl.errors import RssError
from rss_rl.inference.predict_file import score_file
from rss_rl.json_files import canonical_json, read_json
from rss_rl.logs.metrics import read_metrics
from rss_rl.runs.checkpoint import load_checkpoint, read_pointer
from rss_rl.runs.tensor_file import read_tensors
from rss_rl.training.status import read_status

Files = Mapping[str, bytes | None]
"""A directory: contents by relative path; None is a directory where a file should be."""

_CSV = b'id,text,label\n1,"a fine, film",up\n2,a dull one,down\n3,"he said ""no""",down\n'
_JSONL = b'{"text": "a fine film", "label": "up"}\n{"text": ["a", "b"], "label": 2, "x": null}\n'
_VECTORS = b"2 3\nfilm 0.5 -1.25 3e-2\nthe 1 2 3\n"
_WORD2VEC = b"2 3\nfilm " + np.arange(3, dtype="<f4").tobytes() + b"\nthe " + bytes(12) + b"\n"
_YAML = [
    b"data: some\nseed: 3\nphases:\n  - {name: warm-up, supervised: true, steps: 10}\n",
    b"model: {hidden: 8, activation: relu}\npolicy:\n  name: rss\n  options: {hidden: 4}\n",
]
_OVERRIDE = b"learner.supervised={name: sgd, betas: [0.5, 0.9]}"
_WORDS = ["<pad>", "<unk>", "the", "film"]
_RUN, _EXPORT = GOLDEN / "runs" / "resan", GOLDEN / "exports" / "resan"
_STEP = _RUN / "checkpoints" / "step-000004"
_PREPARED = GOLDEN / "prepared" / "sentences"
_PIECES = [
    b'"', b"'", b'""', b",", b"\t", b"\n", b"\r", b"\r\n", b"\0", b"\x1b[2J", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b"{", b"}", b"[", b"]", b"[" * 200, b"{" * 200, b":", b"&a",
    b"*a", b"<<", b"!!", b"- ", b"# ", b"---\n", b"\\ud800", b"\\", b"NaN", b"nan", b"inf",
    b"-Infinity", b"1e999", b"1e-999", b"-0", b"9" * 40, b"9" * 5000, b"9223372036854775808",
    b"-9223372036854775809", b"0x10", b"1_0", b"null", b"true", b"~", b"None", b"../",
    b"/etc/passwd", b"\xe2\x80\xae", b"\xf0\x9f\x8e\xac", b" ", b"x" * 3000, b"PK\x03\x04",
    b"\x1f\x8b\x08", b"ARROW1", b"PAR1",
]  # fmt: skip


@dataclass(frozen=True)
class Target:
    """Something that reads what others wrote.

    sound     inputs that it reads
    read      is given an input and an own folder; what it returns, if a number, tells readings
              apart that went other ways
    damage    one of the inputs, changed
    rarely    called once in so many turns, where a call is slow
    """

    sound: Sequence[Any]
    read: Callable[[Any, Path], object]
    damage: Callable[[Any, random.Random], Any]
    rarely: int = 1


def damaged_bytes(sound: bytes, draw: random.Random) -> bytes:
    """The input with one to six changes."""
    content = bytearray(sound)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        place = draw.randrange(len(content) + 1)
        end = min(len(content), place + draw.choice((1, 1, 2, 8, 40)))
        how = draw.randrange(6)
        if how == 0 and place < len(content):
            content[place] ^= 1 << draw.randrange(8)
        elif how == 1:
            del content[place:end]
        elif how == 2:
            content[place:place] = draw.choice(_PIECES)
        elif how == 3:
            content[place:end] = draw.choice(_PIECES)
        elif how == 4:
            content[place:place] = content[place:end] * draw.choice((1, 2, 30))
        else:
            content[place:place] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 5)))
    return bytes(content)


def damaged_files(sound: Files, draw: random.Random) -> Files:
    """A directory with one to three of its files changed, gone, empty, swapped or a directory."""
    files = dict(sound)
    for _ in range(draw.choice((1, 1, 2, 3))):
        name, other = draw.choice(sorted(files)), draw.choice(sorted(files))
        content = files[name]
        how = draw.randrange(8)
        if how == 0:
            del files[name]
        elif how == 1:
            files[name] = b""
        elif how == 2:
            files[name] = None
        elif how == 3:
            files[name], files[other] = files[other], content
        elif content is not None:
            files[name] = damaged_bytes(content, draw)
        if not files:
            break
    return _sealed(files) if draw.random() < 0.5 else files


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sealed(files: Files) -> Files:
    """The directory with checksums of what is in it, as somebody would write who means harm."""
    sealed = dict(files)
    for name, content in files.items():
        file = name.rpartition("/")[2]
        folder = name.removesuffix(file)
        try:
            record = json.loads(content or b"")
            if file == "export.json":
                others = {each: files.get(f"{folder}{each}") for each in record["sha256"]}
                record["sha256"] = {key: _sha256(value or b"") for key, value in others.items()}
            elif file == "state.json":
                tensors = files.get(f"{folder}{record['tensors_file']}")
                record["tensors_sha256"] = _sha256(tensors or b"")
                record["state_sha256"] = _sha256(canonical_json(record["state"], "").encode())
            elif file == "manifest.json":
                for split in record["splits"].values():
                    for shard in split["shards"]:
                        shard["bytes"] = len(files.get(shard["file"]) or b"")
            else:
                continue
        except (ValueError, KeyError, TypeError, AttributeError, RssError):
            continue
        sealed[name] = json.dumps(record).encode()
    return sealed


def _written(files: Files, folder: Path) -> Path:
    """The directory, on the disk."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


def _files_of(folder: Path) -> Files:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _of_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def of_file(content: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return of_file


# Parsers of bytes.


def _table(path: Path) -> object:
    column_names(path)
    column_types(path)
    return sum(1 for _ in read_records(path))


def _vectors(path: Path) -> object:
    check_vectors(path, skip_bad_rows=True)
    return sum(1 for _ in vector_lines(path, {"film", "the"}))


def _overridden(content: bytes, folder: Path) -> object:
    text = content.decode(errors="surrogateescape")
    base = {"data": "x", "phases": [{"name": "a", "supervised": True, "steps": 1}]}
    return parse_config(with_overrides(base, [text]), where="fuzz")


def _merged(content: bytes, folder: Path) -> object:
    base, own = folder / "base.yaml", folder / "own.yaml"
    base.write_bytes(_YAML[0])
    own.write_bytes(content if b"phases" in content else b"extends: base.yaml\n" + content)
    return load_config(own)


@functools.cache
def _step_files() -> Files:
    return _files_of(_STEP)


def _checkpoint(content: bytes, folder: Path) -> object:
    """A state with the checksum of what it says now, where it is JSON at all."""
    step = folder / _STEP.name
    if not step.exists():
        shutil.copytree(_STEP, step)
    sealed = _sealed({**_step_files(), "state.json": content})
    (step / "state.json").write_bytes(sealed["state.json"] or b"")
    return load_checkpoint(step)


def _pointer(content: bytes, folder: Path) -> object:
    place = folder / "run" / "checkpoints"
    place.mkdir(parents=True, exist_ok=True)
    (place / "BEST").write_bytes(content)
    return read_pointer(folder / "run", "best")


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b"], "label": ["up", "down"]}), sink)
    return sink.getvalue()


def parsers() -> dict[str, Target]:
    """Those of bytes; what reads a path reads a file in memory, where the machine has such."""
    manifest = (_PREPARED / "manifest.json").read_bytes()
    index = (_STEP / "state.json").read_bytes()
    tensors = save({"a/b": np.arange(6, dtype=np.float32).reshape(2, 3)})
    words = json.dumps(_WORDS).encode()
    found: dict[str, tuple[Sequence[bytes], Callable[[bytes, Path], object]]] = {
        "csv": ([_CSV], _of_file("t.csv", _table)),
        "tsv": ([_CSV.replace(b",", b"\t")], _of_file("t.tsv", _table)),
        "jsonl": ([_JSONL], _of_file("t.jsonl", _table)),
        "parquet": ([_parquet()], _of_file("t.parquet", _table)),
        "vectors": ([_VECTORS, _VECTORS[4:]], _of_file("v.txt", _vectors)),
        "word2vec": ([_WORD2VEC], _of_file("v.bin", _vectors)),
        "yaml": (_YAML, _merged),
        "override": ([_OVERRIDE, b"seed=4", b"phases.0.steps=7"], _overridden),
        "manifest": ([manifest], lambda content, _: Manifest.parse(content, "fuzz")),
        "vocabulary": (
            [words],
            _of_file("vocabulary.json", lambda path: Vocabulary.load(path, 4, 4)),
        ),
        "index": ([index], _of_file("i.json", lambda path: read_json(path, "Again"))),
        "checkpoint": ([index], _checkpoint),
        "pointer": ([b"step-000003\n"], _pointer),
        "tensors": ([tensors], _of_file("t.safetensors", lambda p: read_tensors(p, "Again"))),
    }
    slow = {"yaml": 4}
    return {
        name: Target(sound, read, damaged_bytes, slow.get(name, 1))
        for name, (sound, read) in found.items()
    }


# What commands do with a file.


def _prepared(name: str, *, vectors: bool = False) -> Callable[[bytes, Path], object]:
    """`rss-rl data prepare` of the file, or of a sound table with the file as vectors."""

    def prepare(content: bytes, folder: Path) -> object:
        path, table, dev = folder / name, folder / "sound.csv", folder / "dev.csv"
        path.write_bytes(content)
        table.write_bytes(_CSV)
        dev.write_bytes(b"text,label\na fine film,up\n")
        out = folder / "out"
        rss_rl.prepare(
            table if vectors else path,
            text="text",
            label="label",
            dev=dev,
            test=dev,
            out=out,
            dim=3,
            force=True,
            vectors=[path] if vectors else [],
            skip_bad_rows=bool(len(content) % 4),
        )
        use(out)
        return len(open_prepared(out).split("train"))

    return prepare


@functools.cache
def _model() -> Any:
    return rss_rl.load(_EXPORT)


def _scored(path: Path) -> object:
    out = path.parent / "out.jsonl"
    counts = score_file(_model(), path, out, ("text",), skip_bad_rows=True, overwrite=True)
    return 1000 * counts.rows + counts.bad


def _shard(content: bytes, folder: Path) -> object:
    place = folder / "prepared"
    if not place.exists():
        copy_files(_PREPARED, place)
    (place / SHARD).write_bytes(content)
    refit(place)
    return use(place)


def _metrics(content: bytes, folder: Path) -> object:
    place = folder / "run" / "metrics"
    place.mkdir(parents=True, exist_ok=True)
    (place / "part-000000.parquet").write_bytes(content)
    return read_metrics(folder / "run").num_rows


def _status(content: bytes, folder: Path) -> object:
    place = _written(
        {"config.json": b"{}", "status.json": content, "events.jsonl": content}, folder
    )
    return len(read_status(str(place)).problems)


def commands() -> dict[str, Target]:
    """What commands do with a file that a user or another program gives them."""
    status = b'{"state": "stopped", "update": 4, "updates": 9, "scalars": {"a/b": 1.5}}\n'
    event = b'{"time": "2026-01-01T00:00:00+00:00", "level": "warning", "event": "sampler_died"}\n'
    metrics = (_RUN / "metrics" / "part-000000.parquet").read_bytes()
    tsv, shard = _CSV.replace(b",", b"\t"), (_PREPARED / SHARD).read_bytes()
    found: dict[str, tuple[Sequence[bytes], Callable[[bytes, Path], object]]] = {
        "prepare csv": ([_CSV], _prepared("t.csv")),
        "prepare tsv": ([tsv], _prepared("t.tsv")),
        "prepare jsonl": ([_JSONL], _prepared("t.jsonl")),
        "prepare parquet": ([_parquet()], _prepared("t.parquet")),
        "prepare, vectors": ([_VECTORS, _VECTORS[4:]], _prepared("v.txt", vectors=True)),
        "prepare, word2vec": ([_WORD2VEC], _prepared("v.bin", vectors=True)),
        "predict csv": ([_CSV], _of_file("p.csv", _scored)),
        "predict jsonl": ([_JSONL], _of_file("p.jsonl", _scored)),
        "shard": ([shard], _shard),
        "metrics": ([metrics], _metrics),
        "status": ([status, event], _status),
    }
    return {name: Target(sound, read, damaged_bytes) for name, (sound, read) in found.items()}


# Whole directories.


def _open_prepared(files: Files, folder: Path) -> object:
    return use(_written(files, folder / "prepared"))


def _open_model(files: Files, folder: Path) -> object:
    place = _written(files, folder / "result")
    return len(rss_rl.load(place, "latest").predict(TEXTS["sentences"]))


def _open_run(files: Files, folder: Path) -> object:
    place = _written(files, folder / "run")
    read_status(str(place))
    read_metrics(place)
    return _open_model(files, folder)


def directories() -> dict[str, Target]:
    """Prepared data of each kind of task, an export, a run."""
    found = {
        f"data, {path.name}": Target([_files_of(path)], _open_prepared, damaged_files)
        for path in sorted((GOLDEN / "prepared").iterdir())
    }
    found["export"] = Target([_files_of(_EXPORT)], _open_model, damaged_files)
    found["run"] = Target([_files_of(_RUN)], _open_run, damaged_files)
    return found


KINDS = {"memory": parsers, "files": commands, "folders": directories}
