"""A trained model beside pipelines, and a training step beside plain eager torch; ten minutes.

    make bench                                    # or: python tests/benchmarks/bench.py
    python tests/benchmarks/bench.py --compare old/bench.json --threads 1 --clock cpu

What is compared is measured in turns, each side in a process of its own, so that a ratio is of
things that met the same machine. A ratio above 1 is in favour of ours. OUT/bench.json is a list of
{name, ours, theirs, ratio, unit, n, spread}; OUT/bench.md a table with the machine.
"""

from __future__ import annotations

import argparse
import os
from itertools import chain
from pathlib import Path

from reading import reading
from suite.machine import describe_machine
from suite.records import Record, read_records, write_records
from suite.report import comparison, table
from suite.timing import CLOCKS, Settings
from suite.training_step import training_step


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("bench"), help="directory of results")
    parser.add_argument("--compare", type=Path, help="bench.json of another commit")
    parser.add_argument("--repeats", type=int, default=Settings.repeats)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--clock", choices=list(CLOCKS), default=Settings.clock)
    options = parser.parse_args()
    machine = describe_machine() | {"threads": options.threads}
    records: list[Record] = []
    settings = Settings(options.repeats, options.threads, options.clock)
    for record in chain(reading(settings), training_step(settings)):
        records.append(record)
        print(f"{record.name:<60} {record.ratio:6.2f} x", flush=True)
        write_records(options.out / "bench.json", records)
    (options.out / "bench.md").write_text(table(records, machine))
    print(table(records, machine))
    if options.compare:
        print(comparison(records, read_records(options.compare)))


if __name__ == "__main__":
    main()
