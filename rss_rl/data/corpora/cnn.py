"""CNN and Daily Mail (Hermann et al. 2015): a news story, and a summary of it with a blank.

Reads the files as the authors' script writes them, one question each: the address of the story,
the story, the question with @placeholder, the answer and the names of the entities, separated by
empty lines. Entities appear in the texts as @entity12; they are renumbered in the order of the
story.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rss_rl.components import NoOptions
from rss_rl.data.corpora.cloze import CANDIDATE, PLACEHOLDER, no_answer, renamed
from rss_rl.data.corpora.folders import source_folder
from rss_rl.data.sources import (
    BadRow,
    RawExample,
    ReaderSource,
    Row,
    SourceComponent,
    SourceRequest,
)
from rss_rl.errors import DataError

_FOLDERS = {"train": "training", "dev": "validation", "test": "test"}
_ENDING = ".question"
_PARTS = 5
_ENTITY = re.compile(r"@entity\d+")
_REMEDY = "Write it again with the authors' script"


def _read(split: str, folder: Path) -> Iterator[Row]:
    for name in sorted(name for name in os.listdir(folder) if name.endswith(_ENDING)):
        path = folder / name
        try:
            yield _example(path, path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            yield BadRow(str(path), 1, f"cannot be read ({error})", _REMEDY)


def _example(path: Path, text: str) -> Row:
    parts = [part.strip() for part in text.split("\n\n", _PARTS - 1)]
    if len(parts) != _PARTS:
        reason = f"malformed: {len(parts)} of {_PARTS} parts between empty lines"
        return BadRow(str(path), 1, reason, _REMEDY, text)
    _, story, summary, answer, _ = parts
    if PLACEHOLDER not in summary.split():
        return BadRow(str(path), 5, f"the question has no {PLACEHOLDER}", _REMEDY, summary)
    if not _ENTITY.fullmatch(answer):
        return BadRow(str(path), 7, "the answer is not an entity", _REMEDY, answer)
    passage, question, marks, numbers = renamed(_tokens(story), _tokens(summary))
    if answer not in numbers:
        return no_answer(str(path), 7, answer)
    return RawExample(
        id=path.stem,
        texts=(passage, question),
        label=numbers[answer],
        marks=marks,
        file=str(path),
        row=1,
    )


def _tokens(text: str) -> list[tuple[str, str]]:
    """Each word and its entity (empty for none)."""
    return [(word, word if _ENTITY.fullmatch(word) else "") for word in text.split()]


def _build(request: SourceRequest, options: NoOptions) -> ReaderSource:
    folder = source_folder("cnn-dailymail", request, "training, validation and test")
    if (folder / "questions").is_dir():
        folder = folder / "questions"
    for name in _FOLDERS.values():
        if not (folder / name).is_dir():
            raise DataError(
                f"there is no {name}",
                where=str(folder),
                remedy="Give the folder with training, validation and test as --from",
            )
    files = {split: (folder / name,) for split, name in _FOLDERS.items()}
    return ReaderSource("cnn-dailymail", 2, CANDIDATE, files, _read)


CNN_DAILY_MAIL = SourceComponent(
    name="cnn-dailymail",
    help="CNN / Daily Mail: the entity in a story that fills a blank",
    build=_build,
    capabilities=frozenset({"passages"}),
    needs="--from FOLDER with training, validation and test, full of .question files",
    source="Hermann et al., NIPS 2015",
)
