"""The process of one benchmark, a line for each record.

    python -m suite.run MODULE:FUNCTION SETTINGS PART

PART is written when the benchmark has come to its end: its settings and records.
"""

from __future__ import annotations

__all__: list[str] = []

import json
import sys
from dataclasses import asdict
from pathlib import Path

from suite.registry import Benchmark
from suite.timing import Settings

if __name__ == "__main__":
    target, settings, part = sys.argv[1:]
    records = []
    for record in Benchmark(target, minutes=0).load()(Settings(**json.loads(settings))):
        records.append(asdict(record))
        print(json.dumps(records[-1]), flush=True)
    Path(part).write_text(json.dumps({"settings": json.loads(settings), "records": records}))
