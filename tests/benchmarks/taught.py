"""A table from which a small encoder learns what a large one knows about sentences of other texts.

    python tests/benchmarks/taught.py prepared/eraser-movies --teacher RUN --count 24000 \
        --own prepared/sst-2 --out taught.csv

Distinct sentences of the training texts, each with RUN's probability of its last class, and those
of `--own` with their labels, 0 or 1. RUN has two classes. Labels and marks of the texts are not
used. Sentences end where policies are told that they do (`rss_rl.ops.sentence_ends`). A command
that was stopped goes on where it was.
"""

from __future__ import annotations

__all__: list[str] = []

import argparse
import csv
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

import rss_rl
from rss_rl.data.store import Split, open_prepared
from rss_rl.errors import RssError
from rss_rl.ops.sentence_ends import sentence_ends, stop_ids

_AT_ONCE = 128


def sentences(split: Split) -> Iterator[str]:
    """The sentences of the first text of each row, in order; their tokens joined by spaces."""
    for row in range(len(split)):
        words = split.words(row)[0]
        places = torch.arange(len(words))[None]
        stops = stop_ids(words)  # of a text whose token ids are their places
        ends = (sentence_ends(places, stops)[0].nonzero()[:, 0] + 1).tolist()
        for begin, end in zip([0, *ends], [*ends, len(words)], strict=True):
            if begin < end:
                yield " ".join(words[begin:end])


def labelled(split: Split) -> Iterator[tuple[str, float]]:
    """The texts of a split with their labels, 0 or 1."""
    for row in range(len(split)):
        yield " ".join(split.words(row)[0]), float(split.batch([row]).labels[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("prepared", help="Folder of `rss-rl data prepare`.")
    parser.add_argument("--teacher", type=Path, required=True, metavar="RUN")
    parser.add_argument("--own", metavar="PREPARED", help="Training rows that keep their labels.")
    parser.add_argument("--count", type=int, help="Sentences, drawn at random; default: all.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.csv")
    given = parser.parse_args()
    found = list(dict.fromkeys(sentences(open_prepared(given.prepared).split("train"))))
    drawn = random.Random(given.seed).sample(found, min(given.count or len(found), len(found)))
    own = list(labelled(open_prepared(given.own).split("train"))) if given.own else []
    done, begun = 0, given.out.exists()
    if begun:
        with given.out.open(newline="", encoding="utf-8") as file:
            done = max(0, sum(1 for _ in csv.reader(file)) - 1 - len(own))
    teacher = rss_rl.load(given.teacher)
    if teacher.labels.kind != "classes" or len(teacher.labels.names) != 2:
        parser.error(f"--teacher {given.teacher}: it does not tell two classes apart")
    last = teacher.labels.names[-1]
    with given.out.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if not begun:
            writer.writerows([("text", "label"), *own])
            file.flush()
        for start in range(done, len(drawn), _AT_ONCE):
            texts = drawn[start : start + _AT_ONCE]
            for text, answer in zip(texts, teacher.predict(texts), strict=True):
                writer.writerow((text, f"{(answer.class_probabilities or {})[last]:.4f}"))
            file.flush()
            print(f"{start + len(texts):,} of {len(drawn):,} sentences", flush=True)


if __name__ == "__main__":
    try:
        main()
    except RssError as error:
        sys.exit(f"error: {error}")
