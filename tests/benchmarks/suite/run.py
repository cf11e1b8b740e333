"""The process of one benchmark, a line for each record.

python -m suite.run MODULE:FUNCTION SETTINGS
"""

from __future__ import annotations

__all__: list[str] = []

import json
import sys
from dataclasses import asdict

from suite.registry import Benchmark
from suite.timing import Settings

if __name__ == "__main__":
    target, settings = sys.argv[1:]
    for record in Benchmark(target, minutes=0).load()(Settings(**json.loads(settings))):
        print(json.dumps(asdict(record)), flush=True)
