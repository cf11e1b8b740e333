"""Throws damaged input at whatever reads files of others: tables of calls and findings, and JSON.

python tests/benchmarks/fuzzing.py [--minutes 10] [--seed 0] [--only csv yaml] [--json OUT.json]
python tests/benchmarks/fuzzing.py --calls 10000000 --files 50000 --folders 5000 --json OUT.json

Of parsers of bytes as many calls as the minutes allow, or numbers of calls of those, of commands
given a file, and of directories read as a whole (`fuzz_targets`). An input may be read, or refused
with an RssError that says why. Anything else is a finding, as is a call of more than `SLOWEST_S`
of processor time: the first of each kind is printed with its input. An input that is refused at a
place in our code, or read with an outcome, that no input met before is damaged further itself.
--json is written every half minute, with the progress; the same command continues from there.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import rss_rl
from rss_rl.errors import RssError

sys.path.append(str(Path(__file__).resolve().parent.parent / "support"))
from fuzz_targets import KINDS, Target

SLOWEST_S = 2.0
REPORT_EVERY_S = 30.0
_OURS = str(Path(rss_rl.__file__).parent)
_LONGEST, _MOST = 4096, 1000
"""Bytes of an input that is damaged further, and such inputs of a target."""


@dataclass
class Outcome:
    """What came of the calls of a target.

    findings    by kind: how often, and the first input
    met         how inputs were read or refused so far; kept: the first of each, as Latin-1
    """

    calls: int = 0
    read: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    met: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def meet(self, how: str, damaged: object) -> None:
        """Keep an input of which something came that was not seen before."""
        if how not in self.met and len(self.met) < _MOST:
            self.met.append(how)
            if isinstance(damaged, bytes) and len(damaged) <= _LONGEST:
                self.kept.append(damaged.decode("latin-1"))

    def find(self, kind: str, said: str, damaged: object, sound: object) -> None:
        """Count a finding; of a directory what differs from the sound one is shown."""
        if isinstance(damaged, Mapping) and isinstance(sound, Mapping):
            names = sorted({*damaged, *sound})
            differ = [name for name in names if damaged.get(name, 0) != sound.get(name, 0)]
            damaged = {name: damaged.get(name, "gone") for name in differ}
        shown = damaged.decode("latin-1") if isinstance(damaged, bytes) else repr(damaged)
        found = self.findings.setdefault(kind, {"count": 0, "said": said, "input": shown[:2000]})
        found["count"] += 1


def _frames(traceback: TracebackType | None) -> list[tuple[str, int]]:
    found = []
    while traceback is not None:
        found.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    return found


def _call(target: Target, sound: Any, draw: random.Random, folder: Path, outcome: Outcome) -> None:
    damaged = target.damage(sound, draw)
    started = time.process_time()
    try:
        result = target.read(damaged, folder)
    except RssError as error:
        outcome.refused += 1
        frames = _frames(error.__traceback__)
        ours = [f"{Path(file).name}:{line}" for file, line in frames if file.startswith(_OURS)]
        outcome.meet(f"refused at {' '.join(ours)}", damaged)
        if not error.what:
            outcome.find("nothing said", "nothing said", damaged, sound)
    except Exception as error:
        file, line = _frames(error.__traceback__)[-1]
        kind = f"{type(error).__name__} at {Path(file).name}:{line}"
        outcome.find(kind, f"{kind}: {str(error)[:80]}", damaged, sound)
    else:
        outcome.read += 1
        size = result.bit_length() if isinstance(result, int) else ""
        outcome.meet(f"read {size}", damaged)
    took = time.process_time() - started
    outcome.calls += 1
    outcome.slowest_s = max(outcome.slowest_s, took)
    if took > SLOWEST_S and _took_again(target, damaged, folder) > SLOWEST_S:
        outcome.find("slow", f"took {took:.1f} s", damaged, sound)


def _took_again(target: Target, damaged: object, folder: Path) -> float:
    """Processor time of the same call: what is slow once may be the machine."""
    started = time.process_time()
    with suppress(Exception):
        target.read(damaged, folder)
    return time.process_time() - started


def _turn(name: str, target: Target, folder: Path, seed: int, outcome: Outcome) -> None:
    """One call, of a sound input that is damaged, or of a damaged one that is damaged further."""
    draw = random.Random(f"{seed} {name} {outcome.calls}")
    further = outcome.kept and draw.random() < 0.5
    sound = draw.choice(outcome.kept).encode("latin-1") if further else draw.choice(target.sound)
    _call(target, sound, draw, folder, outcome)


def campaign(
    kind: str,
    calls: float,
    seconds: float,
    seed: int,
    only: Sequence[str] = (),
    begun: Mapping[str, Outcome] | None = None,
    watch: Callable[[Mapping[str, Outcome]], None] = lambda outcomes: None,
) -> dict[str, Outcome]:
    """So many calls of all targets of a kind together, or as many as the seconds allow.

    Targets take turns.

    Args:
        kind: of `KINDS`. only: names of targets; none: all.
        begun: what came of a campaign that this one continues.
        watch: called every half minute.
    """
    targets = {name: each for name, each in KINDS[kind]().items() if not only or name in only}
    outcomes = {name: (begun or {}).get(name, Outcome()) for name in targets}
    memory = Path("/dev/shm")
    began = reported = time.monotonic()
    turn = 0
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        folders = {name: Path(place) / str(number) for number, name in enumerate(targets)}
        for folder in folders.values():
            folder.mkdir()
        while sum(outcome.calls for outcome in outcomes.values()) < calls:
            for name, target in targets.items():
                if turn % target.rarely == 0:
                    _turn(name, target, folders[name], seed, outcomes[name])
            turn += 1
            now = time.monotonic()
            if now - reported > REPORT_EVERY_S:
                reported = now
                watch(outcomes)
            if now - began > seconds:
                break
    watch(outcomes)
    return outcomes


def load(file: Path | None) -> dict[str, dict[str, Outcome]]:
    """What `save` wrote, by kind and target; nothing where there is no such file."""
    if file is None or not file.exists():
        return {}
    tree = json.loads(file.read_text(encoding="utf-8"))
    return {
        kind: {name: Outcome(**fields) for name, fields in outcomes.items()}
        for kind, outcomes in tree.items()
    }


def save(file: Path | None, all_outcomes: Mapping[str, Mapping[str, Outcome]]) -> None:
    """Write all outcomes, for a campaign to continue."""
    if file is None:
        return
    tree = {
        kind: {name: vars(outcome) for name, outcome in outcomes.items()}
        for kind, outcomes in all_outcomes.items()
    }
    aside = file.with_suffix(".tmp")
    aside.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
    os.replace(aside, file)


def _progress(kind: str, outcomes: Mapping[str, Outcome], wanted: float) -> None:
    done = sum(outcome.calls for outcome in outcomes.values())
    found = sum(len(outcome.findings) for outcome in outcomes.values())
    met = sum(len(outcome.met) for outcome in outcomes.values())
    of = f" of {wanted:,.0f}" if wanted < float("inf") else ""
    spent, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{kind}: {done:,}{of} calls, {met:,} outcomes, {found} kinds of findings;"
        f" {spent:,.0f} s of processor time, at most {peak / 1024:,.0f} MB",
        file=sys.stderr,
        flush=True,
    )


def _show(outcomes: Mapping[str, Outcome]) -> None:
    head = "| what | calls | read | refused | outcomes | slowest, ms | findings |"
    print(head, "|---" * 7 + "|", sep="\n")
    for name, outcome in outcomes.items():
        findings = Counter({key: each["count"] for key, each in outcome.findings.items()})
        print(
            f"| {name} | {outcome.calls:,} | {outcome.read:,} | {outcome.refused:,} |"
            f" {len(outcome.met)} | {1000 * outcome.slowest_s:.0f} | {dict(findings) or 0} |"
        )
    for name, outcome in outcomes.items():
        for each in outcome.findings.values():
            print(f"\n{name}: {each['said']}\n{each['input']!r:.600}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="Where no calls are asked for.")
    parser.add_argument("--calls", type=int, default=0, help="Of parsers of bytes, in memory.")
    parser.add_argument("--files", type=int, default=0, help="Calls of commands given a file.")
    parser.add_argument("--folders", type=int, default=0, help="Directories read as a whole.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    wanted: dict[str, float] = {
        "memory": given.calls,
        "files": given.files,
        "folders": given.folders,
    }
    seconds = float("inf")
    if not any(wanted.values()):
        wanted, seconds = dict.fromkeys(wanted, float("inf")), 60 * given.minutes / len(wanted)
    logging.disable(logging.WARNING)  # such as of checkpoints that are passed over
    found = load(given.json)
    for kind, calls in wanted.items():

        def watch(outcomes: Mapping[str, Outcome], kind: str = kind, calls: float = calls) -> None:
            found[kind] = dict(outcomes)
            save(given.json, found)
            _progress(kind, outcomes, calls)

        if calls:
            campaign(kind, calls, seconds, given.seed, given.only, found.get(kind), watch)
    for outcomes in found.values():
        _show(outcomes)


if __name__ == "__main__":
    main()
