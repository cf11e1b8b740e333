"""The parts of `device.sh`: what there is to measure on a GPU, as rows of JSON and Markdown.

    python tests/benchmarks/device.py OUT PART... [--small]

OUT/device.json and OUT/device.md are written anew after each row, so that a kill costs one. A part
that has come to its end is not measured again. Without a GPU the same is measured on the CPU.
Times are of the clock on the wall, the device's queue included; with several threads of the CPU
they need a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import csv
import gc
import itertools
import json
import math
import os
import re
import socket
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attention import Backend, Case, materialised
from fixed_update import Feed, FixedUpdate, as_graph, bucket
from operations import Counter
from suite.machine import describe_machine
from suite.reference import PlainReSAN
from suite.training_step import HIDDEN, SIZES, Size, batches_of, words_of
from suite.workers import Worker

import rss_rl
from rss_rl.config import PolicyConfig, RunConfig, load_config
from rss_rl.data.batch_order import BatchOrder
from rss_rl.data.corpora import product_reviews
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, Source
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.learners.group import ALONE, Group, ProcessGroup
from rss_rl.learners.phases import Turn
from rss_rl.learners.updates import RewardBatch
from rss_rl.logs.events import NO_LOG
from rss_rl.packaged import find_config
from rss_rl.policies.build import build_policy
from rss_rl.reward_models.reward_model import Rewards
from rss_rl.rollouts.rollout import Job
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.attempts import LocalRoles, Roles
from rss_rl.training.learner import LocalLearner
from rss_rl.training.trainer import Trainer
from rss_rl.types import LabelSpec

ROOT = Path(__file__).resolve().parents[2]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CUDA = DEVICE.type == "cuda"
CORES = len(os.sched_getaffinity(0))
SELECTIONS, BATCHES = 4, 2
_CO_TRAIN = Turn(supervised=True, policy=True, sampled=True)
_WAITS = "called a synchronizing CUDA operation"
_MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
           "intermediate_size": 1536}  # fmt: skip
Row = dict[str, Any]
Work = Callable[[], object]


class Place:
    """The folder of results, and how large everything is.

    small  seconds on a CPU in place of minutes on a GPU
    limit  seconds after which the part is killed; what would begin after the better half of them
           is left out, so that a slow machine comes to the end, too
    """

    def __init__(self, out: Path, *, small: bool, limit: float = math.inf) -> None:
        self.out, self.small, self.scratch = out, small, out / "scratch"
        self._begin_until = time.monotonic() + 0.55 * limit
        self.scratch.mkdir(parents=True, exist_ok=True)
        file = out / "device.json"
        fresh = {"small": small, "machine": describe_machine(), "done": [], "rows": []}
        self.tree: dict[str, Any] = json.loads(file.read_text()) if file.exists() else fresh
        if self.tree["small"] != small:
            raise SystemExit(f"{out} has results of the other size: give another folder")

    @property
    def repeats(self) -> int:
        """Of each update."""
        return 1 if self.small else 20

    @property
    def is_late(self) -> bool:
        """Whether nothing more may begin."""
        return time.monotonic() > self._begin_until

    @property
    def compiler(self) -> str:
        """Backend of `torch.compile`."""
        return "aot_eager" if self.small else "inductor"

    @property
    def hidden(self) -> int:
        """Features of a word and of a layer."""
        return 8 if self.small else HIDDEN

    @property
    def lengths(self) -> Size:
        """Pairs of SNLI's lengths, as many as the largest updates take."""
        rows = BATCHES * max(self.pairs)
        return replace(SIZES["SNLI"], rows=rows, words=500 if self.small else SIZES["SNLI"].words)

    @property
    def pairs(self) -> tuple[int, ...]:
        """Of an update, the sizes that matter most first; one that a CPU can do without a GPU."""
        if self.small:
            return (8,)
        return (64, 1024, 256, 4096) if CUDA else (64,)

    def measure(self, name: str) -> bool:
        """Measure a part, unless it is done; whether it came to its end."""
        if name in self.tree["done"]:
            return True
        self.tree["rows"] = [row for row in self.tree["rows"] if row["part"] != name]
        started = time.monotonic()
        self._add(name, {"failed": "did not come to its end"})
        unfinished = self.tree["rows"][-1]
        try:
            for row in PARTS[name](self):
                self._add(name, row)
        except Exception as error:  # the other parts have their own questions
            unfinished["failed"] = _reason(error)
        else:
            self.tree["rows"].remove(unfinished)
            self.tree["done"].append(name)
        self._add(name, {"what": "the whole part", "seconds": time.monotonic() - started})
        return name in self.tree["done"]

    def _add(self, part: str, row: Row) -> None:
        shown = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
        print(part, json.dumps(shown), flush=True)
        self.tree["rows"].append({"part": part} | shown)
        for name, text in (
            ("device.json", json.dumps(self.tree, indent=1)),
            ("device.md", markdown(self.tree)),
        ):
            partial = self.out / f"{name}.part"
            partial.write_text(f"{text}\n")
            partial.replace(self.out / name)


def markdown(tree: dict[str, Any]) -> str:
    """A table for each part."""
    lines = [", ".join(f"{key} {value}" for key, value in tree["machine"].items())]
    for part, rows in itertools.groupby(tree["rows"], lambda row: row["part"]):
        shown = [dict(row) for row in rows]
        columns = dict.fromkeys(key for row in shown for key in row if key != "part")
        lines += ["", f"## {part}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        cells = ([str(row.get(key, "")).replace("|", "/") for key in columns] for row in shown)
        lines += [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join(lines)


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:300]


def _wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


def milliseconds(work: Work, repeats: int) -> float:
    """Of one call, after some that are not measured; a slow call is measured once."""
    started = time.perf_counter()
    for _ in range(min(2, repeats)):
        work()
        _wait()
        if time.perf_counter() - started > 2:
            repeats = 1
            break
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    _wait()
    return 1000 * (time.perf_counter() - started) / repeats


def busy_ms(work: Work) -> float:
    """Milliseconds of the device's kernels in one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        work()
        _wait()
    return sum(event.self_device_time_total for event in profiler.key_averages()) / 1000


def host_waits(work: Work) -> int:
    """How often the host waits for the device; on a CPU, how often it would."""
    if not CUDA:
        with Counter() as counter:
            work()
        return counter.reads + counter.shapes
    with warnings.catch_warnings(record=True) as caught, sync_debug("warn"):
        warnings.simplefilter("always")
        work()
    return sum(_WAITS in str(warning.message) for warning in caught)


@contextmanager
def sync_debug(mode: str) -> Iterator[None]:
    """Within it torch warns of, or refuses, what makes the host wait for the device."""
    if CUDA:
        torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        if CUDA:
            torch.cuda.set_sync_debug_mode("default")


def update_row(place: Place, named: Row, make: Callable[[], Work], examples: int) -> Row:
    """Time, examples a second, share of kernels, waits and memory of an update that `make` makes.

    An update that fails, as one for which the memory does not suffice, is a row that says so.
    """
    if place.is_late:
        return named | {"failed": "left out: no time"}
    try:
        work = make()
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        ms = milliseconds(work, place.repeats)
        row = {"ms": ms, "a second": 1000 * examples / ms, "host waits": host_waits(work)}
        if CUDA:
            row["in kernels"] = busy_ms(work) / ms
            row["MB"] = torch.cuda.max_memory_allocated() / 1e6
        return named | row
    except Exception as error:
        return named | {"failed": _reason(error)}
    finally:
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()


class Training:
    """Updates of a configuration's learner on a few batches, whose rollouts are drawn once."""

    def __init__(self, config: RunConfig, prepared: Prepared, group: Group = ALONE) -> None:
        self._learner = LocalLearner(config, prepared, group)
        order = BatchOrder(prepared.split("train"), config.batch_size, config.seed)
        backend = LocalRoles().backend(config, prepared, NO_LOG)
        backend.publish(self._learner.publish(0))
        self.batches = []
        for number in range(BATCHES):
            rows = order.rows(number)
            backend.submit([Job(0, 0, rows, SELECTIONS, scored=True, thresholded=False)])
            self.batches.append((rows, backend.collect(0.0)[0][1]))
        self._turns = itertools.cycle(self.batches)

    def update(self) -> None:
        """The next one."""
        rows, rollout = next(self._turns)
        self._learner.update(0, rows, _CO_TRAIN, rollout)


def pairs_source(size: Size) -> Source:
    """Random pairs of a size."""

    def read(split: str) -> Iterator[RawExample]:
        draw = np.random.default_rng(1)
        for row, pair in enumerate(size.lengths()[: None if split == "train" else 256]):
            words = (words_of(size, (int(count),), draw) for count in pair)
            sentences = tuple(tuple(f"w{word}" for word in each) for each in words)
            yield RawExample(f"{split}-{row}", sentences, "abc"[row % 3])

    labels = LabelSpec("classes", ("a", "b", "c"))
    return Source("pairs", 2, labels, {"train": (), "dev": ()}, read)


def updating(config: RunConfig, prepared: Prepared) -> Work:
    """The update of `Training`."""
    return Training(config, prepared).update


def snli(place: Place, pairs: int = 0, **settings: object) -> tuple[RunConfig, Prepared]:
    """ReSAN as published on random pairs of SNLI's lengths."""
    folder = place.scratch / "snli"
    if not folder.exists():
        prepare(pairs_source(place.lengths), folder, dim=place.hidden)
    given = {"data": folder, "model.encoder.options.keep_unselected": True} | settings
    given |= {"batch_size": pairs, "learner.device": DEVICE.type} | settings if pairs else {}
    given |= {"model.hidden": place.hidden, "sampler.selections": SELECTIONS}
    config = load_config(find_config("snli"), [f"{key}={value}" for key, value in given.items()])
    return config, open_prepared(folder)


def _width(lengths: int) -> int:
    return -(-lengths // 8) * 8


def fixed_update(place: Place, pairs: int, *, compiled: bool, graph: bool) -> tuple[Work, str]:
    """A co-training update at fixed shapes with its batch's way to the device; and why no graph."""
    size = replace(place.lengths, rows=BATCHES * pairs)
    draw, batches = torch.Generator().manual_seed(0), []
    tensors = batches_of(size, BATCHES, pairs)
    widths = [_width(max(b.tokens[slot].shape[1] for b in tensors)) for slot in range(2)]
    for batch in tensors:
        chances = [
            torch.rand(SELECTIONS, len(v), 2, v.shape[1], generator=draw) for v in batch.valid
        ]
        bits = [(c < 0.5) & v[:, None] for c, v in zip(chances, batch.valid, strict=True)]
        rewards = torch.randn(SELECTIONS, pairs, 2, generator=draw)
        terms = Rewards({"score": torch.zeros(SELECTIONS, pairs)}, {"cost": -rewards})
        batches.append(bucket(batch, RewardBatch(bits, terms), pairs, widths))
    torch.manual_seed(0)
    classifier = PlainReSAN(size.words, place.hidden, place.hidden, 3, 0.25).to(DEVICE).train()
    policy = build_policy(PolicyConfig(), place.hidden, "elu").to(DEVICE)
    here = batches[0].to(DEVICE)
    way = place.compiler if compiled else None
    update, feed = FixedUpdate(classifier, policy, here, compiled=way), Feed(here, batches)
    step, why = as_graph(update.step) if graph else (update.step, "")

    def work() -> None:
        with sync_debug("error"):
            feed()
            step()

    return work, why


def fixed_row(place: Place, pairs: int, *, compiled: bool, graph: bool) -> Row:
    """Of `fixed_update`."""
    form = f"fixed shapes{', torch.compile' * compiled}{', CUDA graph' * graph}"
    row: Row = {"pairs": pairs, "form": form}

    def make() -> Work:
        work, why = fixed_update(place, pairs, compiled=compiled, graph=graph)
        if why:
            row["note"] = why
        return work

    return update_row(place, row, make, pairs) | row


def updates(place: Place) -> Iterator[Row]:
    """ReSAN's co-training update: ours packed, at fixed shapes, in a graph, and on the cores."""
    forms = {"packed, Triton": "compiled", "packed, eager": "eager"} if CUDA else {"packed": "auto"}
    for pairs in place.pairs:
        for form, attention in forms.items():
            given = snli(place, pairs, **{"model.attention": attention})
            named = {"pairs": pairs, "form": form}
            yield update_row(place, named, partial(updating, *given), pairs)
        for graph in (False, True):
            yield fixed_row(place, pairs, compiled=False, graph=graph)
    for pairs in place.pairs:
        on_cores = {"learner.device": "cpu", "learner.threads": CORES}
        named = {"pairs": pairs, "form": f"packed, {CORES} cores"}
        yield update_row(place, named, partial(updating, *snli(place, pairs, **on_cores)), pairs)


def compiled(place: Place) -> Iterator[Row]:
    """The same by torch.compile, the sizes that matter most first."""
    for pairs in place.pairs:
        for graph in (True, False):
            started = time.monotonic()
            row = fixed_row(place, pairs, compiled=True, graph=graph)
            yield row | {"seconds with compiling": time.monotonic() - started}


def attention(place: Place) -> Iterator[Row]:
    """Feature-wise attention: Triton beside torch's compilation of the same formula, and eager."""
    for batch, tokens in [(2, 8)] if place.small else [(64, 16), (128, 64), (16, 512)]:
        case = Case(batch, tokens, place.hidden, DEVICE)
        forms: dict[str, Backend] = {
            "Triton" if CUDA else "our kernel": "compiled",
            "eager": "eager",
            "torch.compile": torch.compile(materialised, backend=place.compiler),
        }
        for form, backend in forms.items():
            named = {"texts": batch, "words": tokens, "form": form}
            yield update_row(place, named, partial(case.train, backend), batch)


def reviews() -> list[dict[str, str]]:
    """The product reviews in the package."""
    with Path(product_reviews.__file__).with_suffix(".tsv").open(encoding="utf-8") as opened:
        rows = [*csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE)]
    return [
        {"text": row["words"], "label": "good" if float(row["rating"]) > 0 else "bad"}
        for row in rows
    ]


def minilm(place: Place) -> tuple[str, str]:
    """Folder of MiniLM, and whose weights it has: those at $MINILM, or random ones in its shape."""
    if found := os.environ.get("MINILM"):
        return found, "MiniLM"
    folder = place.scratch / "minilm"
    if not folder.exists():
        import tiny_transformers  # needs transformers

        words = sorted({word.lower() for row in reviews() for word in row["text"].split()})
        size = {} if place.small else _MINILM
        tiny_transformers.save(folder, words=words, classes=2, longest=512, **size)
    return str(folder), "random weights" if place.small else "random weights of MiniLM's shape"


def table(place: Place) -> tuple[Any, str]:
    """What is fitted: the table at $CR, or the reviews in the package."""
    if found := os.environ.get("CR"):
        return found, "CR"
    return reviews()[: 120 if place.small else None], "product reviews of the package"


def transformer(place: Place) -> Iterator[Row]:
    """`transformer/sentences`: its co-training update in both precisions."""
    folder, weights = minilm(place)
    data = place.scratch / "reviews"
    if not data.exists():
        rss_rl.prepare(reviews()[: 200 if place.small else None], out=data, text="text",
                       label="label", dim=50)  # fmt: skip
    for sentences in (4,) if place.small else (32, 256):
        for precision in ("float32", "auto"):
            given = {"data": data, "batch_size": sentences, "learner.device": DEVICE.type,
                     "learner.precision": precision, "sampler.selections": SELECTIONS,
                     "model.encoder.options.pretrained": folder}  # fmt: skip
            settings = [f"{key}={value}" for key, value in given.items()]
            config = load_config(find_config("transformer/sentences"), settings)
            named = {"sentences": sentences, "precision": precision, "weights": weights}
            make = partial(updating, config, open_prepared(data))
            yield update_row(place, named, make, sentences)


def fit(place: Place) -> Iterator[Row]:
    """`fit --pretrained`: its time and scores; then its model at work, beside a pipeline."""
    from transformers import pipeline

    folder, weights = minilm(place)
    rows, data = table(place)
    few = {f"phases.{number}.steps": 2 for number in range(3)} if place.small else {}
    started = time.monotonic()
    run = rss_rl.fit(rows, few, text="text", label="label", pretrained=folder, keep=0.3,
                     time="60s", out=place.scratch / "fit", overwrite=True)  # fmt: skip
    seconds = time.monotonic() - started
    scores = run.evaluate("test", ["thresholded", "all"])
    accuracy = {mode: of_mode["accuracy"] for mode, of_mode in scores.items()}
    yield {"what": "fit", "data": data, "weights": weights, "seconds": seconds} | accuracy
    texts = [row["text"] for row in reviews()][: 64 if place.small else None]
    model = rss_rl.load(run.path, device=DEVICE.type)
    peer = pipeline("text-classification", model=folder, device=DEVICE, batch_size=256)
    for name, work in {
        "predict": lambda: model.predict(texts),
        "pipeline": lambda: peer(texts),
    }.items():
        yield {"what": name, "a second": 1000 * len(texts) / milliseconds(work, 1)}


def learner_turns(out: str, small: bool, rank: int, port: int, by: str) -> Callable[[], float]:
    """Turns of one of two learners, milliseconds an update; of a `Worker`."""
    place = Place(Path(out), small=small)
    # NCCL refuses two learners on one GPU; gloo moves gradients by way of the host.
    where = DEVICE if by == "NCCL" else torch.device("cpu")
    group = ProcessGroup(rank, 2, address="127.0.0.1", port=port, device=where, timeout_s=60)
    training = Training(*snli(place, place.pairs[:2][-1]), group)
    return lambda: milliseconds(training.update, place.repeats)


def learners(place: Place) -> Iterator[Row]:
    """Two learners beside one, on the same batches."""
    pairs = place.pairs[:2][-1]
    alone = milliseconds(updating(*snli(place, pairs)), place.repeats)
    yield {"learners": 1, "pairs": pairs, "ms": alone}
    by = "NCCL" if torch.cuda.device_count() > 1 else "gloo"
    common = {"out": str(place.out), "small": place.small, "by": by}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        common["port"] = free.getsockname()[1]

    def start(rank: int) -> Worker:
        seen = {"CUDA_VISIBLE_DEVICES": str(rank)} if by == "NCCL" else {}
        return Worker("device:learner_turns", common | {"rank": rank}, environment=seen)

    with ThreadPoolExecutor(2) as threads:
        two = list(threads.map(start, range(2)))
        try:
            found = max(threads.map(lambda worker: worker(), two))
        finally:
            for worker in two:
                worker.close()
    yield {"learners": 2, "pairs": pairs, "ms": found, "by": by}


def samplers(place: Place) -> Iterator[Row]:
    """Samplers on the CPU's cores beside the learner: from how many on the GPU does not wait."""
    roles: Roles = LocalRoles()
    counts = [0]
    if not place.small:
        import ray

        from rss_rl.cluster.roles import RayRoles

        ray.init("local", num_cpus=64, include_dashboard=False, log_to_driver=False)
        roles, counts = RayRoles(), [n for n in (1, 4, CORES - 2, 8, 2) if 0 < n < CORES]
    phases = [{"name": "co-train", "supervised": True, "policy": True, "steps": 2600}]
    for count in counts:
        ahead = {"sampler.backend": "ray", "sampler.actors": count,
                 "sampler.max_policy_lag": 2 * count} if count else {}  # fmt: skip
        config, prepared = snli(place, place.pairs[0], phases=json.dumps(phases), **ahead)
        trainer = Trainer(
            config,
            prepared,
            learner=LocalLearner(config, prepared),
            backend=partial(roles.backend, config, prepared, NO_LOG),
            marked=partial(load_checkpoint, place.scratch),
        )
        with closing(trainer):
            updates = 2 * place.repeats
            for _ in range(min(4, updates)):
                trainer.update()
            started = time.perf_counter()
            reports = [trainer.update().scalars for _ in range(updates)]
            rate = updates / (time.perf_counter() - started)
        mean = {tag: statistics.mean(r[tag] for r in reports) for tag in reports[0]}
        yield {"samplers": count or "in the learner's process", "updates a second": rate,
               "learner waits": mean["learner/idle_share"],
               "ms of a learner's update": 1000 * mean["time/learn_s"],
               "ms of a sampler's batch": 1000 * mean["sampler/busy_s"]}  # fmt: skip


def tests(place: Place) -> Iterator[Row]:
    """`pytest -m cuda`: as the CPU, resume to the bit, one sampler = two, Triton's formulas."""
    files = ["tests/integration/test_cuda.py"]
    files += [] if place.small else ["tests/ops/test_attention_triton.py", "tests/models"]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-W", "default", "-p",
               "no:cacheprovider", *files]  # fmt: skip
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    (place.out / "tests.txt").write_text(ended.stdout + ended.stderr)
    for line in re.findall(r"^(?:FAILED|ERROR) .*", ended.stdout, re.MULTILINE):
        yield {"failed": line}
    last = (ended.stdout + ended.stderr).strip().splitlines()[-1]
    if ended.returncode:
        raise RuntimeError(last)
    yield {"what": last}


PARTS: dict[str, Callable[[Place], Iterator[Row]]] = {
    part.__name__: part
    for part in (tests, updates, compiled, attention, transformer, fit, learners, samplers)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of results; those in it are kept")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--small", action="store_true", help="seconds on a CPU")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds that there are")
    options = parser.parse_intermixed_args()
    place = Place(options.out, small=options.small, limit=options.limit)
    return sum(not place.measure(part) for part in options.parts)


if __name__ == "__main__":
    sys.exit(main())
