"""Trains while something of the run is killed or stopped at random, again and again.

    python tests/integration/soak.py CONFIG RUN --minutes 10 --every 20 key=value ...

The victims: a sampler (SIGKILL, or SIGSTOP so that it hangs), a learner process, and the driver
(SIGKILL, or SIGTERM as at a pre-emption), which is then started again with --resume. When the
minutes are over the run is left alone to its end. Prints one JSON object: what was done how often,
whether every update is in the metrics exactly once, and the scores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

from marked import MARK, processes_of, wait_until

from rss_rl.logs.metrics import read_metrics

ACTORS = {"sampler": "ray::SamplerActor", "learner": "ray::LearnerActor"}
HARMS = [
    ("sampler", signal.SIGKILL),
    ("sampler", signal.SIGKILL),
    ("sampler", signal.SIGSTOP),
    ("learner", signal.SIGKILL),
    ("driver", signal.SIGKILL),
    ("driver", signal.SIGTERM),
]

# While Ray starts, a second or so, its own handlers of SIGTERM end the process: with 15, or abort.
ENDED_BY_US = (143, 15, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGABRT)


def drive(arguments: list[str], log: Path, mark: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "rss_rl.cli.main", "train", *arguments],
            stdout=file,
            stderr=file,
            env={**os.environ, "OMP_NUM_THREADS": "1", MARK: mark},
        )


def harm(draw: random.Random, driver: int, mark: str) -> str:
    """Do something to somebody who lives; what it was."""
    lines = processes_of(mark)
    living = {who: [pid for pid in lines if name in lines[pid]] for who, name in ACTORS.items()}
    living["driver"] = [driver]
    who, how = draw.choice([harm for harm in HARMS if living[harm[0]]])
    os.kill(draw.choice(living[who]), how)
    return f"{who} {how.name}"


def soak(config: str, run: Path, minutes: float, every: float, overrides: list[str]) -> dict:
    mark, draw, done = uuid.uuid4().hex, random.Random(0), Counter()
    log = run.with_suffix(".log")
    first = [config, *overrides, "--run-dir", str(run)]
    process = drive(first, log, mark)
    began = time.monotonic()
    lives = 1
    next_harm = began + every
    while True:
        code = process.poll()
        now = time.monotonic()
        if code == 0:
            break
        if code is not None:
            if code not in ENDED_BY_US:
                sys.exit(f"the driver ended with {code}; see {log}")
            # A driver that died before its run directory was there is begun again.
            begun = (run / "config.json").exists()
            process = drive(["--resume", str(run)] if begun else first, log, mark)
            lives += 1
        elif now > next_harm and now - began < 60 * minutes:
            done[harm(draw, process.pid, mark)] += 1
            next_harm = now + every
        time.sleep(0.2)
    # What dead drivers had started goes by itself; Ray's agents miss their cluster after 60 s.
    left = not wait_until(lambda: not processes_of(mark), 90)
    return {
        "harmed": dict(done),
        "harms": sum(done.values()),
        "driver_lives": lives,
        "seconds": round(time.monotonic() - began, 1),
        "processes_left": left,
    } | outcome(run)


def outcome(run: Path) -> dict:
    """What stands in the run directory at the end."""
    table = read_metrics(run).to_pylist()
    updates = Counter(row["step"] for row in table if row["tag"] == "phase/index")
    report = json.loads((run / "report.json").read_text())
    return {
        "updates": len(updates),
        "each_update_once": set(updates.values()) == {1} and max(updates) == len(updates),
        "splits": report["splits"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("run", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=20, help="Seconds between harms.")
    given = parser.parse_intermixed_args()
    result = soak(given.config, given.run, given.minutes, given.every, given.overrides)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
