"""e-SNLI in its authors' .csv files: SNLI's pairs, and the words that explain each label.

`Sentence1_Highlighted_1` has the indices, from 0, of marked words separated by white space ("2,5";
"{}" for none). Training pairs have one annotator, those of dev and test three, whose marks are
merged. Words are tokenised further, and punctuation split off a marked word is not marked.
Annotators of neutral pairs marked the hypothesis only.

Source: Camburu et al., e-SNLI: Natural Language Inference with Natural Language Explanations,
NeurIPS 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rss_rl.components import NoOptions
from rss_rl.data.corpora.folders import source_files, source_folder
from rss_rl.data.records import Record, column_names, examples, read_records, require_columns
from rss_rl.data.sources import ReaderSource, Row, SourceComponent, SourceRequest, Words
from rss_rl.data.tokens import Tokenizer
from rss_rl.types import LabelSpec

_FILES = {
    "train": ("esnli_train_1.csv", "esnli_train_2.csv"),
    "dev": ("esnli_dev.csv",),
    "test": ("esnli_test.csv",),
}
_TEXTS = ("Sentence1", "Sentence2")
_COLUMNS = ("pairID", "gold_label", *_TEXTS, *(f"{text}_Highlighted_1" for text in _TEXTS))
_ANNOTATORS = 3
_LABELS = LabelSpec("classes", names=("entailment", "neutral", "contradiction"))


def _read(split: str, *files: Path) -> Iterator[Row]:
    tokenizer = Tokenizer()
    for path in files:
        require_columns(path, column_names(path), _COLUMNS)
        yield from examples(read_records(path), partial(_example, tokenizer=tokenizer))


def _example(record: Record, tokenizer: Tokenizer) -> Row:
    values = record.values
    texts, rationale = [], []
    for name in _TEXTS:
        columns = [f"{name}_Highlighted_{who}" for who in range(1, _ANNOTATORS + 1)]
        given = values[name].split()
        try:
            marked = {place for each in columns for place in _places(values.get(each, ""))}
        except ValueError as error:
            return record.bad(
                f"a {name}_Highlighted is not a list of numbers ({error})",
                "Correct it, or write {}",
            )
        if outside := sorted(place for place in marked if not 0 <= place < len(given)):
            return record.bad(
                f"word {outside[0]} of {name} is marked, which has {len(given)} words, counted"
                " from 0",
                "Correct the number, or take the row out",
            )
        cut = [
            (piece, place in marked and any(sign.isalnum() for sign in piece))
            for place, word in enumerate(given)
            for piece in tokenizer(word).words
        ]
        texts.append(Words(piece for piece, _ in cut))
        rationale.append(tuple(bit for _, bit in cut))
    return record.example(
        values["pairID"], tuple(texts), values["gold_label"], rationale=tuple(rationale)
    )


def _places(text: str) -> list[int]:
    listed = text.strip().strip("{}")
    return [int(place) for place in listed.split(",")] if listed else []


def _build(request: SourceRequest, options: NoOptions) -> ReaderSource:
    folder = source_folder("e-snli", request, "esnli_train_1.csv")
    remedy = "Put the .csv files of e-SNLI's folder `dataset` there, or name another --from"
    return ReaderSource("e-snli", 2, _LABELS, source_files(folder, _FILES, remedy), _read)


E_SNLI = SourceComponent(
    name="e-snli",
    help="e-SNLI sentence pairs, with the words of both sentences that people marked",
    build=_build,
    capabilities=frozenset({"pairs", "rationales"}),
    needs="--from FOLDER with esnli_train_1.csv, esnli_train_2.csv, esnli_dev.csv, esnli_test.csv",
    source="Camburu et al., NeurIPS 2018",
)
