"""HateXplain: posts, hate speech, offensive or normal, and the words that people marked.

dataset.json holds posts by id: `post_tokens`, three `annotators` with a `label` each, and
`rationales`, a list of 0 and 1 of each annotator who marked words; normal posts are not marked.
post_id_divisions.json holds the ids of the splits. A post has the label of the majority; a post
with three different labels is left out, as by its authors. The maps themselves (`annotations`) are
kept and, as the rationale, the words that anyone marked, which the authors evaluate against.

Source: Mathew et al., HateXplain: A Benchmark Dataset for Explainable Hate Speech Detection, AAAI
2021. A JSON file is a single value, so both files are held in memory while they are read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rss_rl.components import NoOptions
from rss_rl.data.corpora.folders import source_files, source_folder
from rss_rl.data.sources import (
    BadRow,
    RawExample,
    ReaderSource,
    Row,
    SourceComponent,
    SourceRequest,
    Words,
)
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

_POSTS, _DIVISIONS = "dataset.json", "post_id_divisions.json"
_SPLITS = {"train": "train", "dev": "val", "test": "test"}
_CLASSES = {"hatespeech": "hate speech", "offensive": "offensive", "normal": "normal"}
_REMEDY = "Use the files of HateXplain's folder Data as its authors give them"


def _read(split: str, posts: Path, divisions: Path) -> Iterator[Row]:
    """Stream one split; rows are the posts of dataset.json, counted from 1.

    Raises:
        DataError: a file is not HateXplain's.
    """
    wanted = _object(divisions).get(_SPLITS[split])
    if not isinstance(wanted, list):
        raise DataError(f"has no list '{_SPLITS[split]}'", where=str(divisions), remedy=_REMEDY)
    known = _object(posts)
    rows = {name: row for row, name in enumerate(known, start=1)}
    for place, name in enumerate(wanted, start=1):
        if name not in rows:
            yield BadRow(str(divisions), place, f"{_POSTS} has no post {name!r:.80}", _REMEDY)
        else:
            yield _example(str(posts), rows[name], name, known[name])


def _object(path: Path) -> Mapping[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", where=str(path), remedy=_REMEDY) from error
    if not isinstance(tree, dict):
        raise DataError("is not a JSON object", where=str(path), remedy=_REMEDY)
    return tree


def _example(file: str, row: int, name: str, post: Any) -> Row:
    words, labels, maps = (_field(post, key) for key in ("post_tokens", "annotators", "rationales"))
    votes = Counter(str(who.get("label")) if isinstance(who, dict) else "" for who in labels)
    typed = all(isinstance(word, str) for word in words) and set(votes) <= set(_CLASSES)
    if not (words and votes and typed):
        reason = f"post '{name}' lacks post_tokens as texts, or a known label of each annotator"
        return BadRow(file, row, reason, _REMEDY, json.dumps(post)[:1000])
    for bits in maps:
        typed = isinstance(bits, list) and all(isinstance(bit, int) for bit in bits)
        if not (typed and len(bits) == len(words) and set(bits) <= {0, 1}):
            reason = f"a map of post '{name}' does not have a 0 or 1 for each of {len(words)} words"
            return BadRow(file, row, reason, "Correct the map, or take the post out")
    label, most = votes.most_common(1)[0]
    if 2 * most <= len(labels):
        return BadRow(file, row, "no majority label", by_convention=True)
    marked = tuple(sum(bits[i] << k for k, bits in enumerate(maps)) for i in range(len(words)))
    return RawExample(
        id=name,
        texts=(Words(words),),
        label=_CLASSES[label],
        rationale=(tuple(bits > 0 for bits in marked),),
        file=file,
        row=row,
        annotations=marked,
    )


def _field(post: Any, key: str) -> list[Any]:
    found = post.get(key) if isinstance(post, dict) else None
    return found if isinstance(found, list) else []


def _build(request: SourceRequest, options: NoOptions) -> ReaderSource:
    folder = source_folder("hatexplain", request, _POSTS)
    files = source_files(folder, dict.fromkeys(_SPLITS, (_POSTS, _DIVISIONS)))
    labels = LabelSpec("classes", names=tuple(_CLASSES.values()))
    return ReaderSource("hatexplain", 1, labels, files, _read)


HATEXPLAIN = SourceComponent(
    name="hatexplain",
    help="HateXplain posts, hate speech / offensive / normal, with the words that people marked",
    build=_build,
    capabilities=frozenset({"rationales"}),
    needs=f"--from FOLDER with {_POSTS} and {_DIVISIONS}",
    source="Mathew et al., AAAI 2021",
)
