"""All benchmarks of speed and memory as ratios; under a quarter of an hour on two cores.

    make bench                                    # or: python tests/benchmarks/bench.py
    python tests/benchmarks/bench.py --compare old/bench.json
    python tests/benchmarks/bench.py --only step attention --threads 1 --clock cpu

Each benchmark is a process of its own and measures what it compares in turns, so that a ratio is
of things that met the same machine. A ratio above 1 is in favour of ours. OUT/bench.json is a list
of {name, ours, theirs, ratio, unit, n, spread}; OUT/bench.md a table with the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from suite.machine import describe_machine
from suite.records import Record, read_records, write_records
from suite.registry import BENCHMARKS, Benchmark
from suite.report import comparison, table
from suite.timing import CLOCKS, Settings

_HERE = Path(__file__).resolve().parent


def run_benchmark(name: str, benchmark: Benchmark, settings: Settings) -> Iterator[Record]:
    """Records of one benchmark as its process prints them.

    A failure is told on standard error and ends that benchmark alone.
    """
    target, given = benchmark.target, json.dumps(asdict(settings))
    paths = [_HERE, _HERE.parents[1], os.environ.get("PYTHONPATH")]
    variables = {
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path),
        "OMP_NUM_THREADS": str(settings.threads),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "suite.run", target, given],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
        process_group=0,
    )
    began = time.monotonic()
    limit = threading.Timer(60 * benchmark.minutes, _end, (process,))
    limit.start()
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield Record.of(json.loads(line))
        except BaseException:
            _end(process)
            raise
        finally:
            limit.cancel()
    if process.returncode:
        late = time.monotonic() - began >= 60 * benchmark.minutes
        why = f"took over {benchmark.minutes} minutes" if late else f"failed ({process.returncode})"
        print(f"{name} {why}; its records so far are kept", file=sys.stderr)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill it and what it started, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), help="these alone")
    parser.add_argument("--out", type=Path, default=Path("bench"), help="directory of results")
    parser.add_argument("--compare", type=Path, help="bench.json of another commit")
    parser.add_argument("--repeats", type=int, default=Settings.repeats)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--clock", choices=list(CLOCKS), default=Settings.clock)
    return parser.parse_args()


def main() -> None:
    """Measure, print, write."""
    given = parse()
    settings = Settings(given.repeats, given.threads, given.clock)
    machine, started = describe_machine() | {"threads": given.threads}, time.monotonic()
    records: list[Record] = []
    for name, benchmark in BENCHMARKS.items():
        if given.only and name not in given.only:
            continue
        for record in run_benchmark(name, benchmark, settings):
            records.append(record)
            minutes = (time.monotonic() - started) / 60
            print(f"{minutes:5.1f} min  {record.name:<50} {record.ratio:6.2f} x", flush=True)
            write_records(given.out / "bench.json", records)
    if not records:
        raise SystemExit("nothing was measured")
    (given.out / "bench.md").write_text(table(records, machine))
    print(table(records, machine))
    if given.compare:
        print(comparison(records, read_records(given.compare)))


if __name__ == "__main__":
    main()
