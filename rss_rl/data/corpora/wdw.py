"""Who did What (Onishi et al. 2016): which person named in a news story fills the blank.

Reads the XML files of the strict or the relaxed setting, in which each `mc` is an example:
`question` with `leftcontext` and `rightcontext` around the blank, the story `contextart`, and
`choice`s of which one is correct. Candidates are the choices that occur in the story in full,
ignoring case; each mention, of any number of words, becomes one token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from rss_rl.components import NoOptions
from rss_rl.data.corpora.cloze import CANDIDATE, PLACEHOLDER, no_answer, renamed
from rss_rl.data.corpora.folders import source_files, source_folder
from rss_rl.data.sources import (
    BadRow,
    RawExample,
    ReaderSource,
    Row,
    SourceComponent,
    SourceRequest,
)
from rss_rl.data.tokens import Tokenizer
from rss_rl.errors import DataError

_FILES = {"train": "train.xml", "dev": "val.xml", "test": "test.xml"}
_REMEDY = "Use the files as their authors give them"
_TOKENIZER = Tokenizer(lower=True)
_BLANK = "Xblankx"
"""A single word for the tokenizer, in place of the placeholder."""
_Events = Iterator[tuple[str, Element]]


def _read(split: str, path: Path) -> Iterator[Row]:
    parser: XMLPullParser[Element] = XMLPullParser(events=("start", "end"))
    open_: list[Element] = []  # the elements around the current position, root first
    begin, row, number = 1, 0, 0
    try:
        with path.open("rb") as stream:
            for row, line in enumerate(stream, start=1):
                if b"<!ENTITY" in line:
                    raise ParseError("entities are not read")
                parser.feed(line.replace(b"&nbsp;", b" "))  # an undeclared entity
                for event, element in cast(_Events, parser.read_events()):
                    if event == "start":
                        open_.append(element)
                        begin = row if element.tag == "mc" else begin
                    elif open_.pop().tag == "mc":
                        number += 1
                        yield _example(path, begin, number, element)
                        # Otherwise the tree of the whole file would be kept.
                        for parent in open_:
                            parent.clear()
            parser.close()
    except (OSError, ParseError) as error:
        raise DataError(
            f"cannot be read further ({error})", where=f"{path}, row {row}", remedy=_REMEDY
        ) from error


def _example(path: Path, row: int, number: int, element: Element) -> Row:
    story = _text(element.find("contextart"))
    before, after = (_text(element.find(f"question/{side}context")) for side in ("left", "right"))
    choices = [(_text(choice), choice.get("correct")) for choice in element.iter("choice")]
    right = [name for name, correct in choices if correct == "true"]
    if not story.strip() or len(right) != 1 or not all(name.strip() for name, _ in choices):
        what = "an example lacks its story, exactly one right choice, or the name of a choice"
        return BadRow(str(path), row, what, _REMEDY, story[:1000])
    names = _readings([name for name, _ in choices])
    # Tokenised as one text: at the end of a text, the full stop of an abbreviation is split off.
    question = [
        (PLACEHOLDER, "") if word == _BLANK else (word, name)
        for word, name in merged(f"{before} {_BLANK} {after}", names)
    ]
    passage, asked, marks, numbers = renamed(merged(story, names), question)
    answer = numbers.get(" ".join(_within(right[0])))
    if answer is None:
        return no_answer(str(path), row, right[0])
    return RawExample(
        id=f"{path.stem}-{number}",
        texts=(passage, asked),
        label=answer,
        marks=marks,
        file=str(path),
        row=row,
    )


def merged(text: str, names: Mapping[tuple[str, ...], str]) -> list[tuple[str, str]]:
    """The words of a text with each name merged into one token, and its name (empty for none).

    Where several names begin at the same word, the longest is taken.

    Args:
        names: by their words in lower case; a name may have several readings.
    """
    words, keys = _TOKENIZER(text)
    by_length = sorted(names, key=len, reverse=True)
    tokens: list[tuple[str, str]] = []
    place = 0
    while place < len(words):
        found = next((n for n in by_length if keys[place : place + len(n)] == n), ())
        tokens.append((words[place], names.get(found, "")))
        place += max(1, len(found))
    return tokens


def _readings(names: Sequence[str]) -> dict[tuple[str, ...], str]:
    """The words of each name within a sentence, and at its end.

    At the end the tokenizer splits off a full stop: 'Lee Jr.' becomes 'Lee Jr'.
    """
    readings = {_within(name): " ".join(_within(name)) for name in names}
    for name in names:
        *alone, last = _TOKENIZER(name).keys
        if alone and last == ".":
            readings.setdefault(tuple(alone), " ".join(_within(name)))
    return readings


def _within(name: str) -> tuple[str, ...]:
    return _TOKENIZER(f"{name} {_BLANK}").keys[:-1]


def _text(element: Element | None) -> str:
    return "" if element is None else "".join(element.itertext())


def _build(request: SourceRequest, options: NoOptions) -> ReaderSource:
    files = source_files(source_folder("who-did-what", request, "train.xml"), _FILES)
    return ReaderSource("who-did-what", 2, CANDIDATE, files, _read)


WHO_DID_WHAT = SourceComponent(
    name="who-did-what",
    help="Who did What: the person in a story that fills a blank",
    build=_build,
    capabilities=frozenset({"passages"}),
    needs="--from FOLDER with train.xml, val.xml, test.xml (Strict or Relaxed)",
    source="Onishi et al., EMNLP 2016",
)
