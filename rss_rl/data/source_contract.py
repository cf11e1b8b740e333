"""Contract tests for your own sources.

from rss_rl.testing import check_source
check_source(MY_SOURCE, SourceRequest(Path("a-few-rows")), options={"fold": 1})
"""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any

from rss_rl.components import Component
from rss_rl.data.checks import LabelChecker, example_fault
from rss_rl.data.sources import BadRow, RawExample, Source, SourceRequest
from rss_rl.data.tokens import Tokenizer
from rss_rl.errors import ComponentError, DataError
from rss_rl.promises import Promises

_SPLITS = ("train", "dev", "test")
_FIRST_ROW_BYTES = 16 * 2**20
_FIRST_ROW_SHARE = 0.5
"""Before its first row a source may hold this many bytes plus this share of its files: it may read
them to count their rows, but not keep the rows."""
_CHILD_SECONDS = 120
_CHILD = """
import json, pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
source = pickle.load(sys.stdin.buffer)
row = repr(next(iter(source.read("train"))))
print("\\n" + json.dumps({"row": row, "torch": "torch" in sys.modules}))
"""


def check_source(
    source: Component | Source,
    request: SourceRequest | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Check everything that preparation relies on.

    The same rows at every call, in interleaved calls and from a rebuilt source; ids unique within a
    split; texts, labels, rationales and marks that preparation accepts; existing files; rows, even
    bad ones, with their location; rows that stream, so that no file is held in memory; a pickled
    copy that reads the same in another process, without importing torch. For a component, also
    that it has exactly the capabilities that it declares. Reads every row three times: give it few.

    Args:
        source: a component of kind `source`, or what it builds. Its class must be in a module that
            another process can import.
        request: its files and seed. options: of the component.

    Raises:
        ComponentError: the first violation, with a remedy.
        ConfigError, DataError: invalid options, or missing files.
    """
    if not isinstance(source, Component):
        _Checked(source, lambda: source).check()
        return
    if source.kind != "source":
        raise ComponentError(f"is a component of kind {source.kind}", where=source.name)
    own = source.parse(options or {})

    def build() -> Source:
        built: Source = source.build(request or SourceRequest(), own)
        return built

    checked = _Checked(build(), build)
    checked.check()
    checked.check_capabilities(source.all_capabilities(own))


class _Checked(Promises):
    """A source under test, and whether its rows have rationales."""

    def __init__(self, source: Source, build: Callable[[], Source]) -> None:
        name = getattr(source, "name", "")
        where = name if isinstance(name, str) and name else type(source).__name__
        super().__init__(ComponentError, where, "the source")
        self._source, self._build = source, build
        self._tokenizer, self._rationales = Tokenizer(), False

    def check(self) -> None:
        """Run all checks except that of a component's capabilities."""
        members = ("name", "sentences", "label_spec", "splits", "read")
        for member in members:
            self.require(hasattr(self._source, member), f"lacks `{member}`", "See Source")
        self.require(not isinstance(self._source, type), "is a class", "Give an instance of it")
        self._check_splits()
        labels = LabelChecker(self._source.label_spec())
        for split in (split for split in _SPLITS if split in self._source.splits()):
            self._check_streams(split)
            self._check_rows(split, labels)
            if split == "train":
                self._end_of_training(labels)
        self._check_elsewhere()

    def _check_splits(self) -> None:
        """Check its name, slots and files."""
        name, sentences = self._source.name, self._source.sentences
        self.require(isinstance(name, str) and bool(name), "has no name", "Give it `name`")
        self.require(sentences in (1, 2), f"has {sentences!r} texts an example", "Give 1 or 2")
        splits = self._source.splits()
        unknown = sorted(set(splits) - set(_SPLITS))
        self.require(not unknown, f"has the split {unknown[:1]}", "Name train, dev and test")
        self.require("train" in splits, "has no split 'train'", "`splits` must have one")
        for split, files in splits.items():
            for file in files:
                self.require(file.exists(), f"names {file} for {split}", "Name files that exist")

    def _check_streams(self, split: str) -> None:
        """Check that `read` gives an iterator that holds little before its first row."""
        rows = self._source.read(split)
        self.require(
            isinstance(rows, Iterator),
            f"reads {split} as a {type(rows).__name__}",
            "Yield its rows: files need not fit into memory",
        )
        with _peak() as peak:
            next(rows, None)
        size = sum(file.stat().st_size for file in self._files(split) if file.is_file())
        self.require(
            peak() <= _FIRST_ROW_BYTES + _FIRST_ROW_SHARE * size,
            f"holds {peak():,} bytes before the first row of {split}, whose files have {size:,}",
            "Yield each row as soon as it is read",
        )

    def _files(self, split: str) -> tuple[Path, ...]:
        return tuple(self._source.splits()[split])

    def _check_rows(self, split: str, labels: LabelChecker) -> None:
        """Check every row, from three interleaved readers."""
        readers = (self._source, self._source, self._build())
        ids: set[str] = set()
        for row, *others in itertools.zip_longest(*(reader.read(split) for reader in readers)):
            alike = all(other == row for other in others)
            self.require(alike, f"reads {split} differently each time", "Draw from its seed alone")
            if isinstance(row, BadRow):
                located = bool(row.file) and row.row >= 1 and bool(row.reason)
                self.require(
                    located, "has a bad row without file, row and reason", "Give all three"
                )
                continue
            kind = type(row).__name__
            self.require(isinstance(row, RawExample), f"yields a {kind}", "Yield RawExample")
            self._check_example(row, split, labels)
            self.require(row.id not in ids, f"has the id {row.id!r:.60} twice in {split}", "")
            ids.add(row.id)
        self.require(bool(ids), f"has no example in {split}", "Yield RawExample")

    def _check_example(self, example: RawExample, split: str, labels: LabelChecker) -> None:
        which = f"example {example.id!r:.60} of {split}"
        typed = isinstance(example.id, str) and isinstance(example.label, str | Real)
        typed = typed and isinstance(example.texts, tuple) and all(map(_is_text, example.texts))
        self.require(typed, f"has types other than RawExample's in {which}", "See RawExample")
        located = not self._files(split) or (bool(example.file) and example.row >= 1)
        self.require(located, f"does not say where {which} was read", "Give `file` and `row`")
        of_words = zip(example.texts, example.rationale or (), strict=False)
        marked = [*of_words, *([(example.texts[0], example.marks)] if example.marks else [])]
        given = all(isinstance(text, tuple) for text, _ in marked)
        self.require(given, f"marks words of a text in {which}", "Give the words that it marks")
        tokens = [self._tokenizer(text) for text in example.texts]
        fault = example_fault(example, tokens, self._source.sentences, labels.spec)
        if fault is None:
            value, said = labels.value(example.label)
            fault = said if value is None else None
        if fault is not None:
            self.require(False, f"yields {which}: {fault[0]}", fault[1] or "Yield a BadRow")
        marks = (example.rationale, example.annotations)
        self._rationales |= any(bits is not None for bits in marks)

    def _end_of_training(self, labels: LabelChecker) -> None:
        try:
            labels.end_of_training("")
        except DataError as error:
            self.require(False, f"cannot be learnt from: {error.what}", "Name classes or range")

    def _check_elsewhere(self) -> None:
        """Check a pickled copy in another process."""
        command = [sys.executable, "-c", _CHILD]
        given = pickle.dumps(sys.path) + self.dumped(self._source)
        done = subprocess.run(command, input=given, capture_output=True, timeout=_CHILD_SECONDS)
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        self.require(
            done.returncode == 0,
            f"cannot be read in another process: {said:.300}",
            "Declare it in an importable module, and open its files in `read`",
        )
        found = json.loads(done.stdout.splitlines()[-1])
        self.require(
            found["row"] == repr(next(self._source.read("train"))),
            "begins with another row in another process",
            "Keep what it needs in its attributes, and draw from its seed alone",
        )
        self.require(not found["torch"], "imports torch", "Declare it in a module without torch")

    def check_capabilities(self, declared: frozenset[str]) -> None:
        """Check that its declared capabilities match what it does."""
        files = [file for split in self._source.splits() for file in self._files(split)]
        two = bool({"pairs", "passages"} & declared)
        found = {
            "made": (not files, "made" in declared, "names no files"),
            "pairs or passages": (self._source.sentences == 2, two, "has two texts an example"),
            "rationales": (self._rationales, "rationales" in declared, "has marked words"),
        }
        for capability, (holds, says, what) in found.items():
            verb = "declares" if says else "does not declare"
            self.require(
                holds == says,
                f"{what if holds else f'does not appear to be one that {what}'}, and {verb} it",
                f"Its `capabilities` should {'' if holds else 'not '}have {capability}",
            )


def _is_text(text: Any) -> bool:
    words = text if isinstance(text, tuple) else (text,)
    return all(isinstance(word, str) for word in words)


@contextmanager
def _peak() -> Iterator[Callable[[], int]]:
    """Peak bytes that Python and numpy allocate within the block, beyond those before it."""
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    most = 0
    try:
        yield lambda: most
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        if not running:
            tracemalloc.stop()
