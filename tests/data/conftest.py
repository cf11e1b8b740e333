"""Small sources of examples that the tests of this room share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from damaged import ROWS, copy_files

from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, Row, Source
from rss_rl.types import LabelSpec


@pytest.fixture(scope="session")
def list_source() -> Callable[..., Source]:
    """Makes a source of examples given as lists."""

    def made(
        examples: Mapping[str, Sequence[Row]], spec: LabelSpec | None = None, sentences: int = 1
    ) -> Source:
        files: dict[str, tuple[Path, ...]] = dict.fromkeys(examples, ())
        return Source("list", sentences, spec, files, lambda split: iter(examples[split]))

    return made


@pytest.fixture
def sick_folder(tmp_path: Path) -> Path:
    """SICK in the layout of the SemEval task, with made sentences."""
    folder = tmp_path / "sick"
    folder.mkdir()
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    rows = {
        "SICK_train.txt": [
            '7\tA dog isn\'t barking\tThe "big" dog barks, loudly\t4.7\tNEUTRAL',
            "9\tA man rows a boat\tA man is in a boat\t5\tENTAILMENT",
            "12\tNobody sings\tA woman sings\t1.25\tCONTRADICTION",
        ],
        "SICK_trial.txt": ["4\tA cat sleeps\tThe cat is awake\t3.1\tCONTRADICTION"],
        "SICK_test_annotated.txt": ["5\tA zebra runs\tAn animal runs\t4.0\tENTAILMENT"],
    }
    for name, lines in rows.items():
        (folder / name).write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def reviews() -> list[dict[str, object]]:
    """Rows of a table: one text, a class."""
    words = ["good", "bad", "dull", "bright", "slow"]
    return [
        {"review": f"A {words[i % 5]} film, number {i}.", "stars": i % 3, "key": f"r{i}"}
        for i in range(60)
    ]


@pytest.fixture
def write_jsonl() -> Callable[[Path, Sequence[object]], Path]:
    def write(path: Path, rows: Sequence[object]) -> Path:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def small_prepared(
    tmp_path_factory: pytest.TempPathFactory, list_source: Callable[..., Source]
) -> Path:
    rows = []
    for i in range(ROWS):
        text = tuple(f"word{n % 7}" for n in range(i, i + 2 + i % 5))
        bits = tuple(n % 2 == 0 for n in range(len(text)))
        rows.append(RawExample(f"id{i}", (text,), "ab"[i % 2], (bits,)))
    out = tmp_path_factory.mktemp("hostile") / "out"
    prepare(list_source({"train": rows}), out, dim=2)
    return out


@pytest.fixture
def folder(small_prepared: Path, tmp_path: Path) -> Path:
    """A small prepared directory, to damage."""
    target = tmp_path / "copy"
    copy_files(small_prepared, target)
    return target
