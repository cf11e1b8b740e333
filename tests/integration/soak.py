"""Trains while something of the run is killed or stopped at random, again and again.

    python tests/integration/soak.py CONFIG RUN --minutes 10 --every 20 key=value ...

The victims: a sampler (SIGKILL, or SIGSTOP so that it hangs), a learner process, and the driver
(SIGKILL, or SIGTERM as at a pre-emption), which is then started again with --resume; the driver is
paused (SIGSTOP) for some seconds, and its clock jumps by hours to either side. With --storage every
third write there fails. With --disk, the root of a small filesystem of its own that the run lies
on, that is full for some seconds. With --network the samplers lie on a second node, and the network
to it is cut for a while (`two_nodes`). When the minutes are over the run is left alone to its end.
Prints one JSON object: what was done how often, whether every update is in the metrics exactly
once, and the scores.
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
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import soaked
from marked import MARK, processes_of, wait_until
from soaked import CLOCK, STORAGE
from two_nodes import RUN_SETTINGS, TwoNodes

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
PAUSE, CLOCK_JUMPS, DISK_FULL = "driver paused", "clock jumps", "disk full"
CUT = "network cut"
LASTING_S = {PAUSE: 8.0, DISK_FULL: 6.0}
CUTS_S = (5.0, 15.0, 40.0)
"""Shorter than a sampler is waited for, longer, and longer than Ray waits for a node."""
REFUSED = 2
"""Exit code of a driver that says what is wrong, such as that the disk is full."""

# While Ray starts, a second or so, its own handlers of SIGTERM end the process: with 15, or abort.
ENDED_BY_US = (143, 15, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGABRT)


def drive(
    arguments: list[str], log: Path, mark: str, clock: Path, around: Surroundings
) -> subprocess.Popen[bytes]:
    more = around.nodes.environment if around.nodes else {}
    faults = {CLOCK: str(clock), STORAGE: "1" if "--storage" in arguments else ""}
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, soaked.__file__, "train", *arguments],
            stdout=file,
            stderr=file,
            env={**os.environ, "OMP_NUM_THREADS": "1", MARK: mark, **faults, **more},
        )


class Surroundings:
    """What can be done to the machine under a run, and undone when its time is over."""

    def __init__(self, clock: Path, disk: Path | None, nodes: TwoNodes | None) -> None:
        self._clock, self._disk, self.nodes = clock, disk, nodes
        self._undo: list[tuple[float, Callable[[], object]]] = []

    @property
    def harms(self) -> list[str]:
        have_disk, have_nodes = self._disk is not None, self.nodes is not None
        return [PAUSE, CLOCK_JUMPS] + [DISK_FULL] * have_disk + [CUT] * 2 * have_nodes

    def harm(self, what: str, draw: random.Random, driver: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + LASTING_S.get(what, 0.0)
        if what == CLOCK_JUMPS:
            self._clock.write_text(str(draw.choice((-7200, -60, 60, 86_400))))
        elif what == PAUSE:
            driver.send_signal(signal.SIGSTOP)
            self._undo.append((until, lambda: driver.send_signal(signal.SIGCONT)))
        elif what == CUT and self.nodes is not None:
            self.nodes.mend()  # of a cut that still lasts
            self.nodes.cut()
            self._undo.append((time.monotonic() + draw.choice(CUTS_S), self.nodes.mend))
        elif self._disk is not None:
            ballast = self._disk / "ballast"
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            self._undo.append((until, lambda: ballast.unlink(missing_ok=True)))

    def undo(self, *, all_of_them: bool = False) -> None:
        """What has lasted long enough."""
        now = time.monotonic()
        over = [undo for until, undo in self._undo if all_of_them or until <= now]
        self._undo = [] if all_of_them else [each for each in self._undo if each[0] > now]
        for undo in over:
            undo()
        if self.nodes is not None:
            self.nodes.restart_if_lost()


def harm(
    draw: random.Random, driver: subprocess.Popen[bytes], mark: str, around: Surroundings
) -> str:
    """Harm a process that runs, or the machine; what it was."""
    whole = draw.randrange(len(HARMS) + len(around.harms))
    if whole >= len(HARMS):
        what = around.harms[whole - len(HARMS)]
        around.harm(what, draw, driver)
        return what
    lines = processes_of(mark)
    living = {who: [pid for pid in lines if name in lines[pid]] for who, name in ACTORS.items()}
    living["driver"] = [driver.pid]
    who, how = draw.choice([harm for harm in HARMS if living[harm[0]]])
    os.kill(draw.choice(living[who]), how)
    return f"{who} {how.name}"


def soak(
    config: str,
    run: Path,
    minutes: float,
    every: float,
    overrides: list[str],
    *,
    storage: Path | None = None,
    disk: Path | None = None,
    network: bool = False,
    seed: int = 0,
) -> dict:
    mark, draw, done = uuid.uuid4().hex, random.Random(seed), Counter()
    place = run.parent if disk is None else disk.parent
    log, clock = place / f"{run.name}.log", place / f"{run.name}.clock"
    with closing(TwoNodes(mark)) if network else nullcontext() as nodes:
        around = Surroundings(clock, disk, nodes)
        joined = [] if nodes is None else ["--address", nodes.address]
        more = [] if nodes is None else RUN_SETTINGS
        copied = [] if storage is None else ["--storage", str(storage)]
        again = [*joined, *copied, *(["--take-over"] if copied else [])]
        first = [config, *overrides, *more, "--out", str(run), *joined, *copied]
        process = drive(first, log, mark, clock, around)
        began = time.monotonic()
        drivers, refused = 1, 0
        next_harm = began + every
        while True:
            code = process.poll()
            now = time.monotonic()
            if code == 0:
                break
            if code is not None:
                refused += code == REFUSED
                # Of a full disk, a last upload that failed or a cluster that is out of reach it is
                # told; once more, and it continues.
                if code not in ENDED_BY_US and (
                    code != REFUSED or refused > 3 + 2 * sum(done.values())
                ):
                    sys.exit(f"the driver ended with {code}; see {log}")
                around.undo(all_of_them=True)
                # A driver that died before its run directory was there is begun again.
                begun = (run / "config.json").exists()
                arguments = ["--resume", str(run), *again] if begun else first
                process = drive(arguments, log, mark, clock, around)
                drivers += 1
            elif now > next_harm and now - began < 60 * minutes:
                done[harm(draw, process, mark, around)] += 1
                next_harm = now + every
            around.undo()
            time.sleep(0.2)
        around.undo(all_of_them=True)
        # On nodes that stay up, the actors of a run that is over go by themselves.
        left = not wait_until(lambda: not actors_of(mark), 30)
    # What dead drivers had started goes by itself; Ray's agents miss their cluster after 60 s.
    left = not wait_until(lambda: not processes_of(mark), 90) or left
    return {
        "harmed": dict(done),
        "harms": sum(done.values()),
        "driver_processes": drivers,
        "driver_refused": refused,
        "nodes_restarted": 0 if nodes is None else nodes.restarts,
        "seconds": round(time.monotonic() - began, 1),
        "processes_left": left,
    } | outcome(run)


def actors_of(mark: str) -> list[str]:
    """Command lines of the samplers and learners that live."""
    lines = processes_of(mark).values()
    return [line for line in lines if any(name in line for name in ACTORS.values())]


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
    parser.add_argument("--storage", type=Path, help="Gets a copy; every third write fails.")
    parser.add_argument("--disk", type=Path, help="Small filesystem that RUN lies on.")
    parser.add_argument("--network", action="store_true", help="Cut it to a node; as root.")
    parser.add_argument("--seed", type=int, default=0, help="Of the harms.")
    given = parser.parse_intermixed_args()
    result = soak(
        given.config,
        given.run,
        given.minutes,
        given.every,
        given.overrides,
        storage=given.storage,
        disk=given.disk,
        network=given.network,
        seed=given.seed,
    )
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
