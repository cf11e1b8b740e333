"""How much memory a process holds, and what a pass over a split takes.

python resident.py PREPARED BATCH_SIZE     # prints JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def resident_mb() -> tuple[float, float]:
    """Megabytes of anonymous memory and of mapped files of this process (Linux)."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    anonymous, mapped = (int(fields[name].split()[0]) / 1e3 for name in ("RssAnon", "RssFile"))
    return anonymous, mapped


def _pass(prepared: str, batch_size: int) -> dict[str, float]:
    """Ask for every batch of an epoch, fill some of them; memory from a tenth of the way on."""
    from rss_rl.data.batch_order import BatchOrder
    from rss_rl.data.store import open_prepared

    split = open_prepared(prepared).split("train")
    order = BatchOrder(split, batch_size, seed=0)
    count, seen = order.batches_per_epoch, 0
    early = peak = mapped = 0.0
    for number in range(count):
        rows = order.rows(number)
        seen += len(rows)
        if number % 16 == 0:
            split.batch(rows)
            anonymous, file = resident_mb()
            if number <= count // 10:
                early = anonymous
            peak, mapped = max(peak, anonymous), max(mapped, file)
    return {"rows": seen, "early_mb": early, "peak_mb": peak, "mapped_mb": mapped}


if __name__ == "__main__":
    print(json.dumps(_pass(sys.argv[1], int(sys.argv[2]))))
