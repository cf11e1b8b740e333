"""Throws damaged input at every parser of the package: a table of calls and findings, and JSON.

python tests/benchmarks/fuzzing.py [--minutes 10] [--seed 0] [--only csv yaml] [--json OUT.json]

Inputs are sound ones that were changed: bytes flipped, cut, doubled and spliced, and pieces that
have been trouble elsewhere (signs of other formats, numbers at the ends of their ranges, quotes,
escapes). A parser may read an input or refuse it with an RssError that says why. Anything else is
a finding, as is a call of more than `SLOWEST_S`: the first of each kind is printed with the
input, and `--seed` makes it again. Parsers that take a path read a file in memory (`/dev/shm`,
where there is one).
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from rss_rl.config import load_config, with_overrides
from rss_rl.config.loading import parse_config
from rss_rl.data.manifest import Manifest
from rss_rl.data.records import column_names, column_types, read_records
from rss_rl.data.vector_files import check_vectors, vector_lines
from rss_rl.data.vocabulary import Vocabulary
from rss_rl.errors import RssError
from rss_rl.json_files import read_json
from rss_rl.runs.checkpoint import load_checkpoint, read_pointer
from rss_rl.runs.tensor_file import read_tensors

SLOWEST_S = 2.0
_CSV = b'id,text,label\n1,"a fine, film",up\n2,a dull one,down\n3,"he said ""no""",down\n'
_JSONL = b'{"text": "a fine film", "label": "up"}\n{"text": ["a", "b"], "label": 2, "x": null}\n'
_VECTORS = b"2 3\nfilm 0.5 -1.25 3e-2\nthe 1 2 3\n"
_WORD2VEC = b"2 3\nfilm " + np.arange(3, dtype="<f4").tobytes() + b"\nthe " + bytes(12) + b"\n"
_YAML = (
    b"data: prepared/some\nseed: 3\nmodel: {hidden: 8, activation: relu}\n"
    b"policy:\n  name: rss\n  options: {hidden: 4}\n"
    b"phases:\n  - {name: warm-up, supervised: true, selection: all, steps: 10}\n"
)
_OVERRIDE = b"learner.supervised={name: sgd, betas: [0.5, 0.9]}"
_WORDS = ["<pad>", "<unk>", "the", "film"]
_GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "b9a4141"
_STEP = _GOLDEN / "runs" / "resan" / "checkpoints" / "step-000004"
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
    """A parser: sound inputs, and what reads one."""

    seeds: Sequence[bytes]
    read: Callable[[bytes, Path], object]


@dataclass
class Outcome:
    """What came of the calls of a target; `findings` by kind: how often, and the first input."""

    calls: int = 0
    read: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def of_file(content: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return of_file


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


def _checkpoint(content: bytes, folder: Path) -> object:
    step = folder / _STEP.name
    if not step.exists():
        shutil.copytree(_STEP, step)
    (step / "state.json").write_bytes(content)
    return load_checkpoint(step)


def _pointer(content: bytes, folder: Path) -> object:
    place = folder / "run" / "checkpoints"
    place.mkdir(parents=True, exist_ok=True)
    (place / "BEST").write_bytes(content)
    return read_pointer(folder / "run", "best")


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1, 2]}), sink)
    return sink.getvalue()


def targets() -> dict[str, Target]:
    """All parsers, by the name that `--only` takes."""
    manifest = (_GOLDEN / "prepared" / "sentences" / "manifest.json").read_bytes()
    index = (_STEP / "state.json").read_bytes()
    tensors = save({"a/b": np.arange(6, dtype=np.float32).reshape(2, 3)})
    words = json.dumps(_WORDS).encode()
    return {
        "csv": Target([_CSV], _file("t.csv", _table)),
        "tsv": Target([_CSV.replace(b",", b"\t")], _file("t.tsv", _table)),
        "jsonl": Target([_JSONL], _file("t.jsonl", _table)),
        "parquet": Target([_parquet()], _file("t.parquet", _table)),
        "vectors": Target([_VECTORS, _VECTORS[4:]], _file("v.txt", _vectors)),
        "word2vec": Target([_WORD2VEC], _file("v.bin", _vectors)),
        "yaml": Target([_YAML], _file("c.yaml", load_config)),
        "override": Target([_OVERRIDE, b"seed=4", b"phases.0.steps=7"], _overridden),
        "manifest": Target([manifest], lambda content, _: Manifest.parse(content, "fuzz")),
        "vocabulary": Target(
            [words], _file("vocabulary.json", lambda path: Vocabulary.load(path, 4, 4))
        ),
        "index": Target([index], _file("i.json", lambda path: read_json(path, "Again"))),
        "checkpoint": Target([index], _checkpoint),
        "pointer": Target([b"step-000003\n"], _pointer),
        "tensors": Target([tensors], _file("t.safetensors", lambda p: read_tensors(p, "Again"))),
    }


def changed(seed: bytes, draw: random.Random) -> bytes:
    """The input with one to six changes."""
    content = bytearray(seed)
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


def _call(target: Target, content: bytes, folder: Path, outcome: Outcome) -> None:
    started = time.perf_counter()
    kind = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(content, folder)
        outcome.read += 1
    except RssError as error:
        outcome.refused += 1
        kind = "" if error.what else "nothing said"
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        file = "" if where is None else Path(where.tb_frame.f_code.co_filename).name
        line = "" if where is None else f" at {file}:{where.tb_lineno}"
        kind = f"{type(error).__name__}{line}: {str(error)[:80]}"
    took = time.perf_counter() - started
    outcome.calls += 1
    outcome.slowest_s = max(outcome.slowest_s, took)
    if not kind and took > SLOWEST_S:
        kind = "slow"
    if kind:
        found = outcome.findings.setdefault(
            kind.partition(": ")[0],
            {"count": 0, "said": kind, "input": content[:2000].decode("latin-1")},
        )
        found["count"] += 1


def campaign(
    calls: int | None, seconds: float, seed: int, only: Sequence[str] = ()
) -> Mapping[str, Outcome]:
    """So many calls of each parser, or as many as the seconds allow; the parsers take turns."""
    chosen = {name: target for name, target in targets().items() if not only or name in only}
    outcomes = {name: Outcome() for name in chosen}
    memory = Path("/dev/shm")
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        folder = Path(place)
        for number in _numbers(calls):
            for name, target in chosen.items():
                draw = random.Random(f"{seed} {name} {number}")
                _call(target, changed(draw.choice(target.seeds), draw), folder, outcomes[name])
            if number % 64 == 63 and time.monotonic() > ends:
                break
    return outcomes


def _numbers(calls: int | None) -> Iterator[int]:
    number = 0
    while calls is None or number < calls:
        yield number
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(targets()))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    outcomes = campaign(None, 60 * given.minutes, given.seed, given.only)
    print(
        "| parser | calls | read | refused | slowest, ms | findings |", "|---" * 6 + "|", sep="\n"
    )
    for name, outcome in outcomes.items():
        findings = Counter({key: each["count"] for key, each in outcome.findings.items()})
        print(
            f"| {name} | {outcome.calls:,} | {outcome.read:,} | {outcome.refused:,} |"
            f" {1000 * outcome.slowest_s:.0f} | {dict(findings) or 0} |"
        )
    for name, outcome in outcomes.items():
        for each in outcome.findings.values():
            print(f"\n{name}: {each['said']}\n{each['input']!r:.600}")
    if given.json is not None:
        tree = {name: vars(outcome) for name, outcome in outcomes.items()}
        given.json.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
