"""Blocks of code in README and docs, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(
    r"(?:^<!-- not (?:run|checked): (?P<excuse>[^>]+) -->\n)?"
    r"^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_INLINE = re.compile(r"(?<!`)`(rss-rl\s[^`]+)`(?!`)")
_APART = {";", "|", "||", "&&", "&", ">"}
_BEFORE = ("do", "then")


@dataclass(frozen=True)
class Fence:
    """A fenced block, and the reason why it is not run or checked, from a comment before it."""

    place: str
    language: str
    text: str
    excuse: str | None


def pages(repository: Path) -> list[Path]:
    """README, the guide, the changelog, and all of docs/."""
    return [*sorted(repository.glob("*.md")), *sorted((repository / "docs").rglob("*.md"))]


def fences(page: Path) -> Iterator[Fence]:
    """Every fenced block that names its language."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        yield Fence(f"{page.name}:{line}", found["language"], found["text"], found["excuse"])


def typed(console: str) -> Iterator[list[str]]:
    """Commands that a console block types behind `$`, as words; loops and pipes taken apart."""
    lines = console.replace("\\\n", " ").splitlines()
    for line in (line[2:] for line in lines if line.startswith("$ ")):
        yield from _commands(line)


def inline(text: str) -> Iterator[list[str]]:
    """Commands of rss-rl that a text names between backticks."""
    for found in _INLINE.findall(text):
        yield from _commands(" ".join(found.split()))


def _commands(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _APART:
            words.append(word)
            continue
        while words and (words[0] in _BEFORE or re.match(r"[A-Z_]+=", words[0])):
            del words[0]
        if words:
            yield words
        words = []
